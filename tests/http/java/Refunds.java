import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.UUID;

/** Asks for refunds as a Java program does that sets nothing: address, key, then a body each. */
class Refunds {
    public static void main(String[] arguments) throws Exception {
        for (int at = 2; at < arguments.length; at++) {
            byte[] body = arguments[at].getBytes(StandardCharsets.UTF_8);
            ask(arguments, BodyPublishers.ofByteArray(body));
            ask(arguments, BodyPublishers.ofInputStream(() -> new java.io.ByteArrayInputStream(body)));
        }
    }

    private static void ask(String[] arguments, BodyPublisher body) throws Exception {
        HttpClient fresh = HttpClient.newHttpClient();
        for (int time = 0; time < 2; time++) { // the first one asks for HTTP/2, on a new connection
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Authorization", "Bearer " + arguments[1])
                .header("Idempotency-Key", UUID.randomUUID().toString())
                .header("Content-Type", "application/json")
                .POST(body)
                .build();
            var answer = fresh.send(request, BodyHandlers.ofString());
            System.out.println(answer.statusCode() + " " + answer.body());
        }
    }
}

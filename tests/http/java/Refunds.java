import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.util.UUID;

/** Requests refunds with default client settings. Arguments: URL, API key, and a body per refund. */
class Refunds {
    public static void main(String[] arguments) throws Exception {
        for (int index = 2; index < arguments.length; index++) {
            byte[] body = arguments[index].getBytes(StandardCharsets.UTF_8);
            request(arguments, BodyPublishers.ofByteArray(body));
            request(arguments, BodyPublishers.ofInputStream(() -> new java.io.ByteArrayInputStream(body)));
        }
    }

    private static void request(String[] arguments, BodyPublisher body) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int attempt = 0; attempt < 2; attempt++) { // the first request asks for HTTP/2
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Authorization", "Bearer " + arguments[1])
                .header("Idempotency-Key", UUID.randomUUID().toString())
                .header("Content-Type", "application/json")
                .POST(body)
                .build();
            var answer = client.send(request, BodyHandlers.ofString());
            System.out.println(answer.statusCode() + " " + answer.body());
        }
    }
}

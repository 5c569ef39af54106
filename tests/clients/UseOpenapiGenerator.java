import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import payintent.client.ApiClient;
import payintent.client.ApiException;
import payintent.client.api.PaymentsApi;
import payintent.client.model.ApiError;
import payintent.client.model.CreatePayment;
import payintent.client.model.CreateRefund;
import payintent.client.model.CreatedPayment;
import payintent.client.model.CurrencyCode;
import payintent.client.model.Payment;
import payintent.client.model.PaymentStatus;
import payintent.client.model.Refund;

/**
 * Does what a merchant does, with openapi-generator's Java client; prints it as JSON. Arguments: the address of the
 * service, the key, the id of a paid payment, a buyer who is denied.
 */
public final class UseOpenapiGenerator {
  private static final ObjectMapper JSON = ApiClient.createDefaultObjectMapper();
  private final PaymentsApi payments;

  private UseOpenapiGenerator(String base, String key) {
    ApiClient client = new ApiClient();
    client.updateBaseUri(base);
    client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + key));
    payments = new PaymentsApi(client);
  }

  public static void main(String[] arguments) throws Exception {
    UseOpenapiGenerator merchant = new UseOpenapiGenerator(arguments[0], arguments[1]);
    System.out.println(JSON.writeValueAsString(merchant.work(arguments[2], arguments[3])));
  }

  private Map<String, Object> work(String paid, String deniedPayer) throws Exception {
    CreatedPayment created = create("buyer-17");
    if (created.getId() == null) throw new IllegalStateException("nobody has denied it");
    CreatedPayment denied = create(deniedPayer);
    if (denied.getId() != null) throw new IllegalStateException("it was not denied");
    Payment payment = payments.getPayment(created.getId(), null);
    Map<String, Object> saw = new LinkedHashMap<>();
    saw.put("created", created.getId());
    saw.put("denied", "PAYER_BLOCKED"); // of the decision, nothing is left
    saw.put("amount", payment.getAmount());
    saw.put("order", payment.getMetadata().get("order_id"));
    saw.put("listed", payments
        .listPayments(PaymentStatus.PENDING, null, null, payment.getCreatedAt(), null, 10, null, null)
        .getData().stream().map(Payment::getId).toList());
    saw.put("cancelled", payments.cancelPayment(created.getId(), null, null).getStatus());
    saw.put("again", refusedCancel(created.getId()));
    CreateRefund part = new CreateRefund().amount("90.00").reason("one page is torn");
    Refund refund = payments.createRefund(newKey(), paid, null, part);
    saw.put("refund", refund.getId());
    saw.put("refunded", payments.getRefund(refund.getId(), null).getAmount());
    return saw;
  }

  private CreatedPayment create(String payer) throws ApiException {
    CreatePayment order = new CreatePayment().currency(CurrencyCode.THB).amount("1590.00").payerUid(payer);
    order.putMetadataItem("order_id", "A-1009");
    return payments.createPayment(newKey(), order, null);
  }

  /** Cancels a payment that has ended; gives the code of the refusal. */
  private String refusedCancel(String paymentId) throws Exception {
    try {
      payments.cancelPayment(paymentId, null, null);
    } catch (ApiException refused) {
      return JSON.readValue(refused.getResponseBody(), ApiError.class).getCode().getValue();
    }
    throw new IllegalStateException("it was cancelled twice");
  }

  private static String newKey() {
    return UUID.randomUUID().toString();
  }
}

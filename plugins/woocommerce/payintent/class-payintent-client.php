<?php
/** Creates and reads payments at the service. */

declare(strict_types=1);

defined('ABSPATH') || exit;

final class Payintent_Client
{
    private const TIMEOUT_S = 10;
    private const OK = 200;
    private const CREATED = 201;
    private const NOT_FOUND = 404;

    public function __construct(private string $base_url, private string $api_key)
    {
    }

    /**
     * Creates a payment; the same key returns the same payment, so repeating the call is safe.
     *
     * @return array{id: string, checkout_url: string}|null null if the request failed: call again with the same key
     */
    public function create_payment(array $payment, string $idempotency_key): ?array
    {
        $result = $this->request('POST', '', self::CREATED, [
            'headers' => ['Content-Type' => 'application/json', 'Idempotency-Key' => $idempotency_key],
            'body' => wp_json_encode($payment),
        ]);
        return isset($result['id'], $result['checkout_url']) ? $result : null;
    }

    /**
     * Reads the current state of a payment.
     *
     * @return array|null empty if the payment does not exist; null if the service did not return it
     */
    public function read_payment(string $payment_id): ?array
    {
        return $this->request('GET', '/' . rawurlencode($payment_id), self::OK, ['headers' => []]);
    }

    private function request(string $method, string $path, int $expected_status, array $options): ?array
    {
        $options['headers']['Authorization'] = "Bearer {$this->api_key}";
        $url = rtrim($this->base_url, '/') . "/v1/payments{$path}";
        $response = wp_remote_request($url, $options + ['method' => $method, 'timeout' => self::TIMEOUT_S, 'redirection' => 0]);
        if (is_wp_error($response)) {
            $this->log("did not respond: {$response->get_error_message()}");
            return null;
        }
        $status = wp_remote_retrieve_response_code($response);
        $body = json_decode(wp_remote_retrieve_body($response), true);
        if ($method === 'GET' && $status === self::NOT_FOUND && isset($body['code'])) { // not a proxy's 404
            return [];
        }
        if ($status !== $expected_status || !is_array($body)) {
            $this->log_refusal($status, is_array($body) ? $body : []);
            return null;
        }
        return $body;
    }

    /** Logs the reason for the shop's staff, such as a return URL whose origin is not registered. */
    private function log_refusal(int $status, array $body): void
    {
        $reason = is_scalar($body['message'] ?? null) ? substr((string) $body['message'], 0, 500) : '';
        $this->log("responded {$status}: {$reason}");
    }

    private function log(string $event): void
    {
        wc_get_logger()->error("The payment service {$event}", ['source' => 'payintent']);
    }
}

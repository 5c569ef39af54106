<?php
/** Asks the service to create a payment. */

declare(strict_types=1);

defined('ABSPATH') || exit;

final class Payintent_Client
{
    private const TIMEOUT_S = 10;
    private const CREATED = 201;

    public function __construct(private string $base_url, private string $api_key)
    {
    }

    /**
     * Creates a payment; the same key gives the same payment, so a second click is safe.
     *
     * @return array{id: string, checkout_url: string}|null null where there is none: ask again with the same key
     */
    public function create_payment(array $payment, string $idempotency_key): ?array
    {
        $answer = wp_remote_post(rtrim($this->base_url, '/') . '/v1/payments', [
            'timeout' => self::TIMEOUT_S,
            'redirection' => 0,
            'headers' => [
                'Authorization' => "Bearer {$this->api_key}",
                'Content-Type' => 'application/json',
                'Idempotency-Key' => $idempotency_key,
            ],
            'body' => wp_json_encode($payment),
        ]);
        if (is_wp_error($answer) || wp_remote_retrieve_response_code($answer) !== self::CREATED) {
            return null;
        }
        $created = json_decode(wp_remote_retrieve_body($answer), true);
        return isset($created['id'], $created['checkout_url']) ? $created : null;
    }
}

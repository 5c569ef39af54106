<?php
/** Verifies webhooks: a valid webhook is signed (Standard Webhooks 1.0) and recent. */

declare(strict_types=1);

defined('ABSPATH') || exit;

final class Payintent_Webhook
{
    private const TOLERANCE_S = 300;

    /**
     * Returns the event of a webhook, or null if the webhook is invalid.
     *
     * @param string $body the raw body
     * @param string[] $secrets the callback secret (whsec_…), or several secrets during a rotation
     */
    public static function verify(
        string $body,
        string $id,
        string $timestamp,
        string $signatures,
        array $secrets,
        int $now_s
    ): ?array {
        if ($id === '' || !preg_match('/\A[0-9]{1,12}\z/', $timestamp) || abs($now_s - (int) $timestamp) > self::TOLERANCE_S) {
            return null;
        }
        $is_signed = false;
        foreach ($secrets as $secret) {
            $key = base64_decode(preg_replace('/\Awhsec_/', '', $secret), true);
            if ($key === false || $key === '') {
                continue;
            }
            $expected = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$timestamp.$body", $key, true));
            foreach (explode(' ', $signatures) as $signature) {
                $is_signed = hash_equals($expected, $signature) || $is_signed;
            }
        }
        $event = $is_signed ? json_decode($body, true) : null;
        return is_array($event) ? $event : null;
    }
}

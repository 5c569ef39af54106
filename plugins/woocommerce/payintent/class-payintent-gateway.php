<?php
/** The payment method of WooCommerce: to the checkout and back, and paid by webhook alone. */

declare(strict_types=1);

defined('ABSPATH') || exit;

class Payintent_Gateway extends WC_Payment_Gateway
{
    private const BODY_BYTES_MAX = 65536;
    private const LOCK_WAIT_S = 10;
    private const PAYMENT_ID = '_payintent_payment_id'; // an order may have several, one after another
    private const ATTEMPT = '_payintent_attempt';

    public function __construct()
    {
        $this->id = 'payintent';
        $this->method_title = 'Payment Intent Service';
        $this->method_description = 'Buyers choose how to pay on the checkout of your Payment Intent Service.';
        $this->has_fields = false;
        $this->supports = ['products'];
        $this->init_form_fields();
        $this->init_settings();
        $this->title = $this->get_option('title', 'Card, wallet or transfer');
        add_action("woocommerce_update_options_payment_gateways_{$this->id}", [$this, 'process_admin_options']);
    }

    public function init_form_fields(): void
    {
        $this->form_fields = [
            'enabled' => ['title' => 'Enabled', 'type' => 'checkbox', 'default' => 'no'],
            'title' => ['title' => 'Title', 'type' => 'text', 'default' => 'Card, wallet or transfer'],
            'base_url' => ['title' => 'Where the service is', 'type' => 'text', 'default' => ''],
            'api_key' => ['title' => 'Key (sk_…)', 'type' => 'password', 'default' => ''],
            'secrets' => ['title' => 'Callback secrets (whsec_…), blanks between', 'type' => 'password', 'default' => ''],
        ];
    }

    /** Creates the payment of an order, and sends the buyer to its checkout. */
    public function process_payment($order_id): array
    {
        $order = wc_get_order($order_id);
        $amount = wc_format_decimal($order->get_total(), wc_get_price_decimals());
        $currency = $order->get_currency();
        $attempt = $order->get_meta(self::ATTEMPT) ?: '1';
        $payment = $this->client()->create_payment(
            [
                'amount' => $amount,
                'currency' => $currency,
                'payer_uid' => $order->get_customer_id() ? "customer-{$order->get_customer_id()}" : "guest-{$order->get_id()}",
                'metadata' => ['order_id' => (string) $order->get_id()],
            ],
            self::uuid(implode('|', [$order->get_order_key(), $amount, $currency, $attempt]))
        );
        if ($payment === null) {
            wc_add_notice('This cannot be paid now. Please try again.', 'error');
            return ['result' => 'failure'];
        }
        $known = array_map(fn ($meta) => $meta->value, $order->get_meta(self::PAYMENT_ID, false));
        if (!in_array($payment['id'], $known, true)) {
            $order->add_meta_data(self::PAYMENT_ID, $payment['id']);
            $order->save();
        }
        return ['result' => 'success', 'redirect' => $payment['checkout_url']];
    }

    /** Answers a webhook: 401 where it is not to be believed, 204 where it is, whatever it says. */
    public function receive_webhook(): void
    {
        ignore_user_abort(true); // what is begun is ended, although the sender hangs up
        $body = (string) file_get_contents('php://input', false, null, 0, self::BODY_BYTES_MAX + 1);
        if (strlen($body) > self::BODY_BYTES_MAX) {
            $this->answer(413);
        }
        $event = Payintent_Webhook::verify(
            $body,
            $_SERVER['HTTP_WEBHOOK_ID'] ?? '',
            $_SERVER['HTTP_WEBHOOK_TIMESTAMP'] ?? '',
            $_SERVER['HTTP_WEBHOOK_SIGNATURE'] ?? '',
            preg_split('/\s+/', $this->get_option('secrets'), -1, PREG_SPLIT_NO_EMPTY),
            time()
        );
        if ($event === null) {
            $this->answer(401);
        }
        $payment = $event['data']['payment'] ?? null;
        $this->answer(is_array($payment) ? $this->apply((string) $event['type'], $payment) : 204);
    }

    /** Applies an event to its order, one at a time for each order; gives the status to answer with. */
    private function apply(string $type, array $payment): int
    {
        $query = ['limit' => 1, 'meta_key' => self::PAYMENT_ID, 'meta_value' => (string) $payment['id'], 'return' => 'ids'];
        [$order_id] = wc_get_orders($query) + [null];
        if ($order_id === null) {
            return 204;
        }
        global $wpdb;
        $lock = "payintent_{$order_id}";
        if ($wpdb->get_var($wpdb->prepare('SELECT GET_LOCK(%s, %d)', $lock, self::LOCK_WAIT_S)) !== '1') {
            return 503; // the service sends it again
        }
        try {
            $this->change(wc_get_order($order_id), $type, $payment);
        } finally {
            $wpdb->get_var($wpdb->prepare('SELECT RELEASE_LOCK(%s)', $lock));
        }
        return 204;
    }

    private function change(WC_Order $order, string $type, array $payment): void
    {
        if ($order->is_paid()) {
            if ($type === 'payment.completed' && $order->get_transaction_id() !== $payment['id']) {
                $order->add_order_note("{$payment['id']} paid this order once more: give it back.");
            }
            return; // an order ends once
        }
        if ($type === 'payment.completed') {
            $is_same = $payment['currency'] === $order->get_currency()
                && self::plain((string) $payment['amount']) === self::plain((string) $order->get_total());
            if ($is_same) {
                $order->payment_complete($payment['id']);
            } else {
                $order->add_order_note("{$payment['id']} paid {$payment['amount']} {$payment['currency']}, which is not the order's amount.");
            }
        } elseif (in_array($type, ['payment.failed', 'payment.expired', 'payment.cancelled'], true)) {
            $known = array_map(fn ($meta) => $meta->value, $order->get_meta(self::PAYMENT_ID, false));
            if (end($known) === $payment['id']) { // the order stays payable: the next click makes another payment
                $order->update_meta_data(self::ATTEMPT, (string) (1 + count($known)));
                $order->save();
            }
        }
    }

    /** Gives a decimal text without the zeros at its end: 20.00 and 20 are one amount. */
    private static function plain(string $amount): string
    {
        return str_contains($amount, '.') ? rtrim(rtrim($amount, '0'), '.') : $amount;
    }

    /** Makes a UUID of a name, version 8: the same for the same name. */
    private static function uuid(string $name): string
    {
        $bytes = substr(hash('sha256', $name, true), 0, 16);
        $bytes[6] = chr(ord($bytes[6]) & 0x0f | 0x80);
        $bytes[8] = chr(ord($bytes[8]) & 0x3f | 0x80);
        return vsprintf('%s%s-%s-%s-%s-%s%s%s', str_split(bin2hex($bytes), 4));
    }

    private function client(): Payintent_Client
    {
        return new Payintent_Client($this->get_option('base_url'), $this->get_option('api_key'));
    }

    private function answer(int $status): never
    {
        status_header($status);
        exit;
    }
}

<?php
/** The payment method for WooCommerce, which sends buyers to the checkout and applies the outcome to their orders. */

declare(strict_types=1);

use Automattic\WooCommerce\Caches\OrderCache;

defined('ABSPATH') || exit;

class Payintent_Gateway extends WC_Payment_Gateway
{
    private const BODY_BYTES_MAX = 65536;
    private const LOCK_WAIT_S = 10;
    private const PAYMENT_ID = '_payintent_payment_id'; // an order can have several payments, one after another
    private const PAYER = '_payintent_payer'; // the payer of a requested payment whose id is not known yet
    private const OPEN = ['PENDING', 'PROCESSING'];
    private const ENDED_UNPAID = ['CANCELLED', 'EXPIRED', 'FAILED'];
    private const REVIEWED = ['AMOUNT_MISMATCH', 'TOKEN_MISMATCH', 'ONCHAIN_TIMEOUT']; // money may have arrived
    private const POLLED_ORDERS_MAX = 100;
    private const POLLED_S = 2 * 24 * 3600; // a payment ends within a day, except on a slow chain
    /** The messages for unpaid orders on the page to which the buyer returns. */
    private const TEXTS = [
        'PENDING' => 'Your order is waiting for your payment.',
        'PROCESSING' => 'Your payment is being processed.',
        'FAILED' => 'Your payment has failed. You have not been charged.',
        'EXPIRED' => 'Your payment expired before it was confirmed.',
        'CANCELLED' => 'Your payment was cancelled. You have not been charged.',
    ];
    /** The currencies in ISO 4217 that do not have two decimals. */
    private const DECIMALS = [
        'BIF' => 0, 'CLP' => 0, 'DJF' => 0, 'GNF' => 0, 'ISK' => 0, 'JPY' => 0, 'KMF' => 0, 'KRW' => 0, 'PYG' => 0,
        'RWF' => 0, 'UGX' => 0, 'UYI' => 0, 'VND' => 0, 'VUV' => 0, 'XAF' => 0, 'XOF' => 0, 'XPF' => 0,
        'BHD' => 3, 'IQD' => 3, 'JOD' => 3, 'KWD' => 3, 'LYD' => 3, 'OMR' => 3, 'TND' => 3,
    ];

    public function __construct()
    {
        $this->id = 'payintent';
        $this->method_title = 'Payment Intent Service';
        $this->method_description = 'Buyers choose how to pay on the checkout page of your Payment Intent Service.';
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
            'base_url' => ['title' => 'URL of the service', 'type' => 'text', 'default' => ''],
            'api_key' => ['title' => 'API key (sk_…)', 'type' => 'password', 'default' => ''],
            'secrets' => ['title' => 'Callback secrets (whsec_…), separated by spaces', 'type' => 'password', 'default' => ''],
        ];
    }

    /** Sends the buyer to the checkout of the order's payment. */
    public function process_payment($order_id): array
    {
        $url = $this->with_lock((int) $order_id, fn (WC_Order $order): ?string => $this->find_next_page($order));
        if ($url === null) {
            wc_add_notice('The payment could not be started. Please try again.', 'error');
            return ['result' => 'failure'];
        }
        return ['result' => 'success', 'redirect' => $url];
    }

    /**
     * Shows the returning buyer the payment of an unpaid order, and a link to pay again. Reads the payment from the service
     * and applies it like a webhook, because anyone can forge the page's query string.
     */
    public function show_payment(int $order_id): void
    {
        $payment = $this->with_lock($order_id, fn (WC_Order $order): array|false|null => $this->refresh($order));
        if ($payment === false || ($payment && $payment['status'] === 'PAID')) {
            return; // WooCommerce shows its own thank-you message
        }
        if (!$payment) {
            $this->show('We cannot check your payment at the moment. Please reload this page.');
        } elseif (self::is_reviewed($payment)) {
            $this->show('We need to review your payment. Please do not pay again. We will contact you.');
        } elseif (isset(self::TEXTS[$payment['status']])) {
            $label = in_array($payment['status'], self::OPEN, true) ? 'Continue to payment' : 'Pay again';
            $this->show(self::TEXTS[$payment['status']], wc_get_order($order_id)->get_checkout_payment_url(), $label);
        } else {
            $this->show('We are confirming your payment.');
        }
    }

    /** Refreshes recent unpaid orders, because a webhook can be lost. */
    public function poll(): void
    {
        $order_ids = wc_get_orders([
            'limit' => self::POLLED_ORDERS_MAX,
            'payment_method' => $this->id,
            'status' => ['pending', 'on-hold', 'failed', 'cancelled'],
            'date_created' => '>' . (time() - self::POLLED_S),
            'orderby' => 'date',
            'order' => 'DESC',
            'return' => 'ids',
        ]);
        foreach ($order_ids as $order_id) {
            $this->with_lock($order_id, fn (WC_Order $order): array|false|null => $this->refresh($order));
        }
    }

    /** Reads the latest payment of an unpaid order, and applies it. Returns false if there is nothing to read. */
    private function refresh(WC_Order $order): array|false|null
    {
        $payment_ids = self::payment_ids($order);
        if (!$payment_ids || $order->is_paid()) {
            return false;
        }
        $payment = $this->client()->read_payment(end($payment_ids));
        if ($payment && $payment['status'] === 'PAID') {
            $this->change($order, 'payment.completed', $payment);
        }
        return $payment;
    }

    private static function is_reviewed(array $payment): bool
    {
        return in_array($payment['failure_reason'] ?? '', self::REVIEWED, true);
    }

    private function show(string $text, string $url = '', string $label = ''): void
    {
        $link = $url ? sprintf(' <a class="button" href="%s">%s</a>', esc_url($url), esc_html($label)) : '';
        printf('<p class="payintent" role="status">%s%s</p>', esc_html($text), $link);
    }

    /** Responds to a webhook: 413 or 401 if it is too large or invalid, 503 if its order stays locked, otherwise 204. */
    public function receive_webhook(): void
    {
        ignore_user_abort(true); // finish processing even if the sender disconnects
        $body = (string) file_get_contents('php://input', false, null, 0, self::BODY_BYTES_MAX + 1);
        if (strlen($body) > self::BODY_BYTES_MAX) {
            $this->respond(413);
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
            $this->respond(401);
        }
        $payment = $event['data']['payment'] ?? null;
        $this->respond(is_array($payment) ? $this->apply((string) $event['type'], $payment) : 204);
    }

    /** Applies an event to its order, one event at a time for each order. Returns the response status. */
    private function apply(string $type, array $payment): int
    {
        $query = ['limit' => 1, 'meta_key' => self::PAYMENT_ID, 'meta_value' => (string) $payment['id'], 'return' => 'ids'];
        [$order_id] = wc_get_orders($query) + [null];
        if ($order_id === null) {
            return 204;
        }
        $is_done = $this->with_lock($order_id, function (WC_Order $order) use ($type, $payment): bool {
            $this->change($order, $type, $payment);
            return true;
        });
        return $is_done ? 204 : 503; // after a 503, the service retries
    }

    /** Runs `$callback` with the current order under the order's lock. Returns null if the lock is not free in time. */
    private function with_lock(int $order_id, callable $callback): mixed
    {
        global $wpdb;
        // The shops on a database server share its lock names, which have at most 64 characters.
        $lock = 'payintent_' . md5(DB_NAME . ".{$wpdb->prefix}") . "_{$order_id}";
        if ($wpdb->get_var($wpdb->prepare('SELECT GET_LOCK(%s, %d)', $lock, self::LOCK_WAIT_S)) !== '1') {
            return null;
        }
        try {
            return $callback(self::read_again($order_id));
        } finally {
            $wpdb->get_var($wpdb->prepare('SELECT RELEASE_LOCK(%s)', $lock));
        }
    }

    /**
     * Reads an order from the database. This request may have read the order before it acquired the lock, and WordPress
     * keeps it in caches: as a post, or as an object and a row of WooCommerce's own tables.
     */
    private static function read_again(int $order_id): WC_Order
    {
        clean_post_cache($order_id);
        wc_get_container()->get(OrderCache::class)->remove($order_id);
        WC_Data_Store::load('order')->clear_cached_data([$order_id]);
        $order = wc_get_order($order_id);
        $order->read_meta_data(true);
        return $order;
    }

    /** Returns the URL of the order's open payment, or of a new payment if it has ended. Returns null on failure. */
    private function find_next_page(WC_Order $order): ?string
    {
        if ($order->is_paid()) {
            return $this->get_return_url($order);
        }
        $payment_ids = self::payment_ids($order);
        $payment = $payment_ids ? $this->client()->read_payment(end($payment_ids)) : [];
        if ($payment === null) {
            return null; // a new payment could be a duplicate
        }
        if (!$payment || (in_array($payment['status'], self::ENDED_UNPAID, true) && !self::is_reviewed($payment))) {
            return $this->begin_attempt($order, 1 + count($payment_ids));
        }
        if (!in_array($payment['status'], self::OPEN, true)) {
            return $this->get_return_url($order); // money has arrived or may have arrived
        }
        return self::is_price_of($payment, $order)
            ? $payment['checkout_url'] ?? null
            : $this->begin_attempt($order, 1 + count($payment_ids));
    }

    /** Creates the order's next payment. A call without a response is repeated with the same key and payer. */
    private function begin_attempt(WC_Order $order, int $attempt): ?string
    {
        $payer = $order->get_meta(self::PAYER);
        if ($payer === '') {
            $payer = $order->get_customer_id() ? "customer-{$order->get_customer_id()}" : "guest-{$order->get_id()}";
            $order->update_meta_data(self::PAYER, $payer);
            $order->save();
        }
        [$amount, $currency] = [self::amount($order), $order->get_currency()];
        $payment = $this->client()->create_payment(
            [
                'amount' => $amount,
                'currency' => $currency,
                'payer_uid' => $payer,
                'metadata' => ['order_id' => (string) $order->get_id()],
                'return_url' => $this->get_return_url($order),
                'cancel_url' => $order->get_checkout_payment_url(), // WooCommerce's "Pay for order" page
            ],
            self::uuid(implode('|', [$order->get_order_key(), $amount, $currency, $attempt]))
        );
        if (!$payment) {
            return null;
        }
        $order->add_meta_data(self::PAYMENT_ID, $payment['id']);
        $order->delete_meta_data(self::PAYER);
        $order->save();
        return $payment['checkout_url'];
    }

    private function change(WC_Order $order, string $type, array $payment): void
    {
        if ($order->is_paid()) {
            if ($type === 'payment.completed' && $order->get_transaction_id() !== $payment['id']) {
                $order->add_order_note("{$payment['id']} paid this order a second time. Refund this payment.");
            }
            return; // a paid order does not change
        }
        if ($type === 'payment.completed') {
            if (self::is_price_of($payment, $order)) {
                $order->payment_complete($payment['id']);
            } else {
                $order->add_order_note("{$payment['id']} paid {$payment['amount']} {$payment['currency']}, which is not the order's amount.");
            }
        }
        // After any other event, the order can still be paid: the next click reads the payment and creates a new one.
    }

    /** Returns the order's total with the currency's decimals, which can differ from the shop's decimals. */
    private static function amount(WC_Order $order): string
    {
        return wc_format_decimal($order->get_total(), self::DECIMALS[$order->get_currency()] ?? 2);
    }

    private static function is_price_of(array $payment, WC_Order $order): bool
    {
        return $payment['currency'] === $order->get_currency()
            && self::normalize((string) $payment['amount']) === self::normalize(self::amount($order));
    }

    /** @return string[] the ids of the order's payments, newest last */
    private static function payment_ids(WC_Order $order): array
    {
        return array_values(array_map(fn ($meta) => $meta->value, $order->get_meta(self::PAYMENT_ID, false)));
    }

    /** Removes trailing zeros from a decimal string, because 20.00 and 20 are the same amount. */
    private static function normalize(string $amount): string
    {
        return str_contains($amount, '.') ? rtrim(rtrim($amount, '0'), '.') : $amount;
    }

    /** Returns the same UUID (version 8) for the same name. */
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

    private function respond(int $status): never
    {
        status_header($status);
        exit;
    }
}

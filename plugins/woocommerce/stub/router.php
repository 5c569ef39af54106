<?php
/**
 * A minimal substitute for WordPress and WooCommerce, with only the functions that the plugin calls, for its tests.
 *
 * It serves the plugin's webhooks and the routes for `payintent-cli grade`. Each order is a file, and GET_LOCK locks a
 * file with the name of the lock.
 */

declare(strict_types=1);

const ABSPATH = __DIR__;
define('DB_NAME', getenv('STUB_DATABASE') ?: 'wordpress');
define('AMOUNT', getenv('STUB_AMOUNT') ?: '20.00'); // as WooCommerce stores it, with the shop's decimals
define('CURRENCY', getenv('STUB_CURRENCY') ?: 'THB');
require __DIR__ . '/orders.php';

function folder(): string
{
    return getenv('STUB_FOLDER');
}

$hooks = [];

function add_action(string $name, callable $callback): void
{
    global $hooks;
    $hooks[$name][] = $callback;
}

function add_filter(string $name, callable $callback): void
{
    add_action($name, $callback);
}

function do_action(string $name, mixed ...$values): void
{
    global $hooks;
    foreach ($hooks[$name] ?? [] as $callback) {
        $callback(...$values);
    }
}

function apply_filters(string $name, mixed $value): mixed
{
    global $hooks;
    foreach ($hooks[$name] ?? [] as $callback) {
        $value = $callback($value);
    }
    return $value;
}

/** WP-Cron. Accepts only intervals that a filter has added. The tests run the events. */
function wp_next_scheduled(string $hook): int|false
{
    return false;
}

function wp_schedule_event(int $first, string $interval, string $hook): void
{
    if (!isset(apply_filters('cron_schedules', [])[$interval])) {
        throw new RuntimeException("WordPress does not have the interval {$interval}");
    }
}

function register_deactivation_hook(string $file, callable $callback): void
{
}

function esc_html(string $text): string
{
    return htmlspecialchars($text, ENT_QUOTES);
}

function esc_url(string $url): string
{
    return htmlspecialchars($url, ENT_QUOTES);
}

/** Returns a logger that writes to the log of PHP's server. */
function wc_get_logger(): object
{
    return new class () {
        public function error(string $text, array $context): void
        {
            error_log("{$context['source']}: {$text}");
        }
    };
}

function status_header(int $status): void
{
    http_response_code($status);
}

function wp_json_encode(mixed $value): string
{
    return json_encode($value);
}

function wc_format_decimal(string $value, int $places): string
{
    return number_format((float) $value, $places, '.', '');
}

function wc_add_notice(string $text, string $kind): void
{
}

function wp_remote_request(string $url, array $arguments): array|WP_Error
{
    $headers = array_map(fn ($name, $value) => "$name: $value", array_keys($arguments['headers']), $arguments['headers']);
    $http = ['method' => $arguments['method'], 'header' => $headers, 'content' => $arguments['body'] ?? '', 'timeout' => $arguments['timeout']];
    $options = ['http' => $http + ['ignore_errors' => true, 'follow_location' => 0]];
    $body = @file_get_contents($url, false, stream_context_create($options));
    return $body === false ? new WP_Error() : ['status' => (int) explode(' ', $http_response_header[0])[1], 'body' => $body];
}

/** The features of WooCommerce with which the plugin is compatible. */
class FeaturesUtil
{
    public static array $features = [];

    public static function declare_compatibility(string $feature, string $file, bool $is_compatible): void
    {
        self::$features[$feature] = $is_compatible;
    }
}

class_alias(FeaturesUtil::class, 'Automattic\WooCommerce\Utilities\FeaturesUtil');

class WP_Error
{
    public function get_error_message(): string
    {
        return 'Connection refused';
    }
}

function is_wp_error(mixed $response): bool
{
    return $response instanceof WP_Error;
}

function wp_remote_retrieve_response_code(array $response): int
{
    return $response['status'];
}

function wp_remote_retrieve_body(array $response): string
{
    return $response['body'];
}

/** Reads the settings from the environment instead of the plugin's settings page. */
abstract class WC_Payment_Gateway
{
    public string $id;
    public string $title;
    public string $method_title;
    public string $method_description;
    public bool $has_fields;
    public array $supports;
    public array $form_fields;

    public function init_settings(): void
    {
    }

    public function process_admin_options(): void
    {
    }

    public function get_option(string $name, string $default = ''): string
    {
        $names = ['base_url' => 'PAYINTENT_URL', 'api_key' => 'PAYINTENT_API_KEY', 'secrets' => 'PAYINTENT_WEBHOOK_SECRET'];
        return isset($names[$name]) ? (string) getenv($names[$name]) : $default;
    }

    public function get_return_url(WC_Order $order): string
    {
        return "http://{$_SERVER['HTTP_HOST']}/received/{$order->get_id()}?key={$order->get_order_key()}";
    }
}

/** MariaDB's named locks. */
class Locks
{
    public string $prefix = 'wp_';
    private array $handles = [];

    public function prepare(string $query, mixed ...$values): array
    {
        return [$query, ...$values];
    }

    public function get_var(array $query): string
    {
        [$text, $name] = $query;
        $path = folder() . "/$name";
        if (str_starts_with($text, 'SELECT GET_LOCK')) {
            $this->handles[$name] = fopen("$path.lock", 'c');
            if (!flock($this->handles[$name], LOCK_EX | LOCK_NB)) {
                touch("$path.waits"); // the tests wait for it
                flock($this->handles[$name], LOCK_EX);
            }
            return '1';
        }
        flock($this->handles[$name], LOCK_UN);
        return '1';
    }
}

/** Returns the order of a cart, which WooCommerce stores in the buyer's session. */
function find_order(string $cart): WC_Order
{
    $ids = fopen(folder() . '/ids.lock', 'c');
    flock($ids, LOCK_EX);
    $path = folder() . '/cart-' . hash('sha256', $cart);
    if (!is_file($path)) {
        $id = 1 + count(glob(folder() . '/cart-*'));
        (new WC_Order(['id' => $id, 'cart' => $cart, 'status' => 'pending', 'meta' => []]))->save();
        file_put_contents($path, (string) $id);
    }
    flock($ids, LOCK_UN);
    return wc_get_order(file_get_contents($path));
}

/** Serves the "Order received" page and the "Pay for order" page, which require the order's key. */
function show_order_page(WC_Order $order, string $kind): never
{
    if (($_GET['key'] ?? '') !== $order->get_order_key()) {
        http_response_code(403);
        exit;
    }
    if ($kind === 'received') {
        do_action('woocommerce_thankyou_payintent', $order->get_id());
    } elseif ($_SERVER['REQUEST_METHOD'] === 'POST' && !$order->is_paid()) {
        $response = (new Payintent_Gateway())->process_payment($order->get_id());
        header('Location: ' . ($response['redirect'] ?? ''), true, 303);
    }
    exit;
}

function serve(string $path): mixed
{
    if (isset($_GET['wc-api'])) {
        do_action("woocommerce_api_{$_GET['wc-api']}");
    }
    if (preg_match('#\A/(received|order-pay)/([0-9]+)\z#', $path, $matches) && ($order = wc_get_order($matches[2]))) {
        show_order_page($order, $matches[1]);
    }
    if ($path === '/features') {
        do_action('before_woocommerce_init');
        return FeaturesUtil::$features;
    }
    if ($path === '/graded/poll') {
        do_action('payintent_poll'); // as WP-Cron does
        return [];
    }
    if ($path === '/graded' && $_SERVER['REQUEST_METHOD'] === 'POST') {
        $click = json_decode(file_get_contents('php://input'), true);
        $order = find_order($click['cart_id']);
        if (isset($click['customer_id'])) { // the buyer has signed in, which the checkout saves in the order
            $order->set_customer_id($click['customer_id']);
            $order->save();
        }
        $response = (new Payintent_Gateway())->process_payment($order->get_id());
        http_response_code($response['result'] === 'success' ? 201 : 502);
        return wc_get_order($order->get_id())->view() + ['checkout_url' => $response['redirect'] ?? ''];
    }
    if (preg_match('#\A/graded/([0-9]+)\z#', $path, $matches) && ($order = wc_get_order($matches[1]))) {
        return $order->standing();
    }
    http_response_code(preg_match('#\A/graded/[0-9]+/#', $path) ? 409 : 404);
    return ['message' => 'A placed order cannot be changed.'];
}

$wpdb = new Locks();
require __DIR__ . '/../payintent/payintent.php';
do_action('plugins_loaded');
$response = $_SERVER['REQUEST_URI'] === '/healthz' ? ['status' => 'ok'] : serve(parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH));
header('Content-Type: application/json');
echo json_encode($response);

<?php
/** The orders of the substitute for WooCommerce. Each order is a file, which each request keeps in caches. */

declare(strict_types=1);

class WC_Order
{
    public function __construct(private array $fields)
    {
    }

    public function get_id(): int
    {
        return $this->fields['id'];
    }

    public function get_order_key(): string
    {
        return "wc_order_{$this->fields['cart']}";
    }

    public function get_checkout_payment_url(): string
    {
        return "http://{$_SERVER['HTTP_HOST']}/order-pay/{$this->get_id()}?pay_for_order=true&key={$this->get_order_key()}";
    }

    public function get_total(): string
    {
        return AMOUNT;
    }

    public function get_currency(): string
    {
        return CURRENCY;
    }

    public function get_customer_id(): int
    {
        return $this->fields['customer_id'] ?? 0;
    }

    public function set_customer_id(int $id): void
    {
        $this->fields['customer_id'] = $id;
    }

    /** Does not use the caches if `$force` is set, unlike other reads. */
    public function read_meta_data(bool $force): void
    {
        $this->fields['meta'] = json_decode(file_get_contents(folder() . "/{$this->get_id()}.json"), true)['meta'];
    }

    public function get_meta(string $name, bool $single = true): mixed
    {
        $values = $this->fields['meta'][$name] ?? [];
        return $single ? ($values[0] ?? '') : array_map(fn ($value) => (object) ['value' => $value], $values);
    }

    public function add_meta_data(string $name, string $value): void
    {
        $this->fields['meta'][$name][] = $value;
    }

    public function update_meta_data(string $name, string $value): void
    {
        $this->fields['meta'][$name] = [$value];
    }

    public function delete_meta_data(string $name): void
    {
        unset($this->fields['meta'][$name]);
    }

    public function add_order_note(string $text): void
    {
    }

    public function get_transaction_id(): string
    {
        return $this->fields['transaction_id'] ?? '';
    }

    public function is_paid(): bool
    {
        return $this->fields['status'] === 'paid';
    }

    /** Reads and then writes, as WooCommerce does, so two simultaneous calls deliver twice. */
    public function payment_complete(string $payment_id): void
    {
        $this->fields['transaction_id'] = $payment_id;
        $this->fields['status'] = 'paid';
        usleep(20_000);
        $this->save();
        file_put_contents(folder() . "/{$this->get_id()}.handed_out", '.', FILE_APPEND);
    }

    public function save(): void
    {
        $path = folder() . "/{$this->get_id()}.json";
        file_put_contents("$path." . getmypid(), json_encode($this->fields));
        rename("$path." . getmypid(), $path);
        $GLOBALS['caches'] = array_fill_keys(array_keys($GLOBALS['caches']), []);
    }

    public function view(): array
    {
        $payments = $this->fields['meta']['_payintent_payment_id'] ?? [''];
        return ['order_id' => (string) $this->get_id(), 'payment_id' => end($payments), 'amount' => AMOUNT, 'currency' => CURRENCY];
    }

    public function standing(): array
    {
        $handed_out = @filesize(folder() . "/{$this->get_id()}.handed_out") ?: 0;
        return ['status' => $this->is_paid() ? 'paid' : 'waiting', 'handed_out' => $handed_out];
    }
}

/**
 * The orders that this request has read, which WooCommerce keeps in several caches: with WordPress's posts, as objects,
 * and as rows of its own tables. A shop has the first, or the other two.
 */
$caches = ['posts' => [], 'objects' => [], 'rows' => []];

function clean_post_cache(int $id): void
{
    global $caches;
    unset($caches['posts'][$id]);
}

class OrderCache
{
    public function remove(int $id): void
    {
        global $caches;
        unset($caches['objects'][$id]);
    }
}

class WC_Data_Store
{
    public static function load(string $type): self
    {
        return new self();
    }

    public function clear_cached_data(array $ids): void
    {
        global $caches;
        $caches['rows'] = array_diff_key($caches['rows'], array_flip($ids));
    }
}

class_alias(OrderCache::class, 'Automattic\WooCommerce\Caches\OrderCache');

function wc_get_container(): object
{
    return new class () {
        public function get(string $class): object
        {
            return new $class();
        }
    };
}

function wc_get_order(int|string $id): WC_Order|false
{
    global $caches;
    $path = folder() . '/' . (int) $id . '.json';
    if (!is_file($path)) {
        return false;
    }
    $fields = json_decode(file_get_contents($path), true);
    foreach ($caches as $name => $cache) {
        $fields = $cache[(int) $id] ?? $fields;
        $caches[$name][(int) $id] = $fields;
    }
    return new WC_Order($fields);
}

/** Returns the ids of the orders with a metadata value, or with one of the statuses. */
function wc_get_orders(array $query): array
{
    $paths = array_filter(glob(folder() . '/*.json'), function (string $path) use ($query): bool {
        $order = json_decode(file_get_contents($path), true);
        return isset($query['meta_key'])
            ? in_array($query['meta_value'], $order['meta'][$query['meta_key']] ?? [], true)
            : in_array($order['status'], $query['status'], true);
    });
    return array_map(fn (string $path): int => (int) basename($path, '.json'), array_values($paths));
}

<?php
/**
 * Plugin Name: Payment Intent Service for WooCommerce
 * Description: Sends buyers to the checkout of a self-hosted Payment Intent Service, and processes its signed webhooks.
 * Version: 1.0.0-rc.1
 * Requires PHP: 8.1
 * Requires Plugins: woocommerce
 * WC requires at least: 8.2
 * License: Apache-2.0
 */

declare(strict_types=1);

use Automattic\WooCommerce\Utilities\FeaturesUtil;

defined('ABSPATH') || exit;

require_once __DIR__ . '/class-payintent-client.php';
require_once __DIR__ . '/class-payintent-webhook.php';

add_action('plugins_loaded', function (): void {
    if (!class_exists('WC_Payment_Gateway')) {
        return;
    }
    require_once __DIR__ . '/class-payintent-gateway.php';
    add_filter('woocommerce_payment_gateways', fn (array $gateways): array => [...$gateways, 'Payintent_Gateway']);
    // The service sends its webhooks to https://shop.example/?wc-api=payintent
    add_action('woocommerce_api_payintent', fn () => (new Payintent_Gateway())->receive_webhook());
    // The page to which the buyer returns.
    add_action('woocommerce_thankyou_payintent', fn (int $order_id) => (new Payintent_Gateway())->show_payment($order_id));
    // A webhook can be lost, so the payments of open orders are read every few minutes.
    add_filter('cron_schedules', fn (array $schedules): array => $schedules + [
        'payintent_poll' => ['interval' => 300, 'display' => 'Every five minutes'],
    ]);
    add_action('payintent_poll', fn () => (new Payintent_Gateway())->poll());
    if (!wp_next_scheduled('payintent_poll')) {
        wp_schedule_event(time(), 'payintent_poll', 'payintent_poll');
    }
});

// Without these declarations, WooCommerce does not offer its own order tables (HPOS), and shows no warning in the editor of
// the block checkout.
add_action('before_woocommerce_init', function (): void {
    FeaturesUtil::declare_compatibility('custom_order_tables', __FILE__, true);
    FeaturesUtil::declare_compatibility('cart_checkout_blocks', __FILE__, false);
});

register_deactivation_hook(__FILE__, fn () => wp_clear_scheduled_hook('payintent_poll'));

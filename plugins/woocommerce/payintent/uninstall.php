<?php
/** Deletes the settings, which contain the API key and the webhook secrets, when the plugin is deleted. */

declare(strict_types=1);

defined('WP_UNINSTALL_PLUGIN') || exit;

delete_option('woocommerce_payintent_settings');

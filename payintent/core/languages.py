"""The languages of the hosted checkout."""

#: Each language's own name, by language tag.
OWN_NAMES = {
    "en": "English",
    "ja": "日本語",
    "th": "ไทย",
    "zh-Hant": "繁體中文",
    "id": "Bahasa Indonesia",
    "ar": "العربية",
}
LOCALES = tuple(OWN_NAMES)

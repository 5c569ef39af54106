// The features that our served scripts and style sheets may use. package.json lists the browsers.
// A newer feature passes only with a fallback and a comment on its line.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

import { membersRule } from "./members-rule.mjs";

const FOLDER = process.env.PAYINTENT_WEB_TOOLS;
const require = createRequire(pathToFileURL(`${FOLDER}/package.json`));
const { default: css } = await import(pathToFileURL(require.resolve("@eslint/css")).href);
const es = require("eslint-plugin-es-x");

const LISTENER = "CallExpression:matches([callee.name=addEventListener], [callee.property.name=addEventListener])";

/** Features that css/use-baseline misses: values of custom properties, nesting and ranges. */
const unseen = {
  meta: { type: "problem", schema: [], messages: { late: "{{ what }} has no fallback in a supported browser" } },
  create(context) {
    const report = (node, what) => context.report({ node, messageId: "late", data: { what } });
    return {
      Declaration(node) {
        const text = node.property.startsWith("--") ? context.sourceCode.getText(node.value) : "";
        const late = /\b(light-dark|color-mix|color|oklch|oklab|lch|lab|hwb|contrast-color)\(|\d[dls]v[hwib]\b/.exec(text);
        if (late) report(node, late[0]);
      },
      "Rule Rule": (node) => report(node, "nesting"),
      "Atrule[name=/^(media|container)$/]"(node) {
        if (node.prelude && /[<>=]/.test(context.sourceCode.getText(node.prelude))) report(node, "a range in a media query");
      },
    };
  },
};

export default [
  {
    files: ["**/*.js"],
    plugins: { es, ours: { rules: { members: membersRule(FOLDER) } } },
    languageOptions: { ecmaVersion: "latest", sourceType: "module" },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "ours/members": "error",
      // Syntax; the rule above checks members
      "es/no-class-static-block": "error",
      "es/no-error-cause": "error",
      "es/no-dynamic-import-options": "error",
      "es/no-import-attributes": "error",
      "es/no-private-in": "error",
      "es/no-regexp-d-flag": "error",
      "es/no-regexp-duplicate-named-capturing-groups": "error",
      "es/no-regexp-lookbehind-assertions": "error",
      "es/no-regexp-modifiers": "error",
      "es/no-regexp-v-flag": "error",
      "es/no-top-level-await": "error",
      "es/no-using-declarations": "error",
      "es/no-arbitrary-module-namespace-names": "error",
      "es/no-hashbang": "error",
      "no-restricted-syntax": [
        "error",
        { selector: `${LISTENER} > ObjectExpression.arguments > Property[key.name=signal]`, message: "Chrome 87 ignores a listener's signal" },
        { selector: "MemberExpression[object.name=/[sS]ignal$/][property.name=reason]", message: "Safari 15 has no AbortSignal.reason" },
      ],
    },
  },
  {
    files: ["**/*.css"],
    plugins: { css, ours: { rules: { unseen } } },
    language: "css/css",
    rules: {
      // The rule allows features that all browsers had in 2020, features of Chrome 87 and Safari 15 or
      // earlier, and features that affect only the appearance. All others belong in @supports.
      "css/use-baseline": [
        "error",
        {
          available: 2020,
          allowFunctions: ["fit-content"],
          allowMediaConditions: ["scripting"],
          allowProperties: [
            "accent-color", "color-scheme", "contain-intrinsic-size", "content-visibility", "inset", "inset-block-start",
            "margin-block", "margin-inline", "outline", "padding-block", "padding-inline", "scroll-margin-top", "scroll-padding-top",
            "text-autospace", "text-wrap", "user-select",
          ],
          allowPropertyValues: { width: ["fit-content"], "word-break": ["auto-phrase", "break-word"] },
          allowSelectors: ["focus-visible"],
        },
      ],
      "ours/unseen": "error",
    },
  },
];

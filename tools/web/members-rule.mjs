// An ESLint rule: a web platform member that a supported browser lacks needs a fallback. The type of
// `x` in `x.at()` is unknown here, so a name is reported only if all types that have this member
// gained it too late. Names that our own objects also use are reported only if they are called.
// `x.at?.()` checks that the member exists, and therefore counts as a fallback.

import { members } from "./browsers.mjs";

/** Fields of our own objects and messages, which are not platform members. */
const OURS = new Set(
  ("action address at check code country destroy group icon info key locale memory nonce price " +
    "provider requestId session status to token uuid when").split(" "),
);
/** Methods of our own objects that share a name with a method of a rare interface. */
const OUR_CALLS = new Set(["destroy", "session"]);

/** @param {string} folder in which the packages are installed */
export function membersRule(folder) {
  const entries = members(folder);
  const globals = new Set(entries.filter(({ name, isNew }) => !name && isNew).map(({ owner }) => owner));
  const newMembers = new Set(entries.filter(({ isNew }) => isNew).map(({ owner, name }) => `${owner}.${name}`));
  const owners = new Set(entries.map(({ owner }) => owner).filter((owner) => /^[A-Z]/.test(owner)));
  const instance = entries.filter(({ name, isStatic }) => name && !isStatic);
  const oldNames = new Set(instance.filter(({ isNew }) => !isNew).map(({ name }) => name));
  const lateNames = new Set(instance.filter(({ name, isNew }) => isNew && !oldNames.has(name)).map(({ name }) => name));

  return {
    meta: { type: "problem", schema: [], messages: { late: "a supported browser lacks {{ name }}, so it needs a fallback" } },
    create(context) {
      const report = (node, name) => context.report({ node, messageId: "late", data: { name } });
      const isGlobal = (node) =>
        node?.type === "Identifier" && !context.sourceCode.getScope(node).references.some((reference) => reference.identifier === node && reference.resolved?.defs.length);
      const isWindow = (node) => isGlobal(node) && /^(window|globalThis|self|top|parent)$/.test(node.name);
      return {
        MemberExpression(node) {
          const { object, property, computed, parent } = node;
          const name = computed ? property.value : property.name;
          if (typeof name !== "string") return;
          const isCalled = parent.type === "CallExpression" && parent.callee === node;
          if (isCalled && parent.optional) return; // `x.requestSubmit?.()` checks that it exists
          if (isWindow(object) && globals.has(name)) report(node, name);
          else if (isGlobal(object) && owners.has(object.name)) {
            if (newMembers.has(`${object.name}.${name}`)) report(node, `${object.name}.${name}`);
          } else if (lateNames.has(name) && (isCalled ? !OUR_CALLS.has(name) : !OURS.has(name))) report(node, name);
        },
        "ObjectPattern > Property"({ key, computed }) {
          if (!computed && lateNames.has(key.name) && !OURS.has(key.name)) report(key, key.name);
        },
        "Program:exit"(program) {
          const scope = context.sourceCode.getScope(program);
          for (const { identifier } of scope.through) {
            const isTypeofCheck = identifier.parent.type === "UnaryExpression" && identifier.parent.operator === "typeof";
            if (globals.has(identifier.name) && !isTypeofCheck) report(identifier, identifier.name);
          }
        },
      };
    },
  };
}

import jsxA11y from "eslint-plugin-jsx-a11y";
import reactHooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["node_modules", "*.mjs", "*.js"] },
  ...tseslint.configs.strict,
  jsxA11y.flatConfigs.recommended,
  {
    plugins: { "react-hooks": reactHooks },
    rules: {
      "react-hooks/rules-of-hooks": "error",
      "react-hooks/exhaustive-deps": "error",
      "no-restricted-syntax": [
        "error",
        {
          selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']",
          message: "Text of a model must never become HTML.",
        },
        { selector: "MemberExpression[property.name=/^(innerHTML|outerHTML)$/]", message: "Build elements instead." },
      ],
      "jsx-a11y/no-noninteractive-tabindex": ["error", { tags: ["section", "div"], roles: ["region", "tabpanel"] }],
    },
  },
);

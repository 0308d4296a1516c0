export default {
  input: "../../openapi/openapi.json",
  output: { path: "src/generated", module: { extension: ".js" } },
  plugins: ["@hey-api/typescript", "@hey-api/sdk", "@hey-api/client-fetch"],
};

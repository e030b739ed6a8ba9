// An OpenID provider on a loopback port, for tests. Persons sign in with their name and any password.
import { createServer } from "node:http";
import Provider from "./vendor/oidc-provider-9.13.3.mjs";

const { client, persons } = JSON.parse(process.argv[2]);
let handle = null;
const server = createServer((request, response) => handle(request, response));
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [client],
    pkce: { required: () => true },
    claims: { openid: ["sub"], profile: ["name", "groups"], email: ["email"] },
    features: { rpInitiatedLogout: { enabled: true } },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...persons[id] }) }),
  });
  // The port of the service is not known yet.
  provider.Client.prototype.redirectUriAllowed = (url) => url.startsWith("http://127.0.0.1") && url.endsWith("/oidc-callback");
  provider.Client.prototype.postLogoutRedirectUriAllowed = (url) => url.startsWith("http://127.0.0.1");
  handle = provider.callback();
  console.log(issuer);
});
process.stdin.resume().on("end", () => process.exit(0)); // the test has ended

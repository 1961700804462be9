//! What the API is, as OpenAPI 3.1: from the routes themselves, and from the shapes below.
//!
//! Invariant: `docs/openapi.json` is this document, and every shape here is what `crate::json` writes; tests compare both.
//! Not here: the answers themselves (`crate::json`).

mod shapes;

use utoipa::OpenApi as _;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, InfoBuilder, License, OpenApi};
use utoipa_axum::router::OpenApiRouter;

use super::access::Access;
use super::routes;
pub(crate) use shapes::*;

/// The name of the only way to be known.
const BEARER: &str = "token";

#[derive(utoipa::OpenApi)]
struct Empty;

/// The whole description.
pub(crate) fn document() -> OpenApi {
    let mut document = Empty::openapi();
    let mut license = License::new("MIT OR Apache-2.0");
    license.identifier = Some("MIT OR Apache-2.0".to_owned());
    document.info = InfoBuilder::new()
        .title("countersign")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Run tool calls that somebody answers for."))
        .license(Some(license))
        .build();
    let mut components = Components::new();
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme(BEARER, SecurityScheme::Http(token));
    document.components = Some(components);
    let mut router: OpenApiRouter<super::App> = OpenApiRouter::with_openapi(document);
    for route in routes::all() {
        let access = route.access();
        let mut endpoint = route.described();
        if access != Access::Open {
            for item in endpoint.1.paths.values_mut() {
                let operations =
                    [&mut item.get, &mut item.post, &mut item.patch, &mut item.put, &mut item.delete];
                for operation in operations.into_iter().flatten() {
                    let needs = SecurityRequirement::new(BEARER, Vec::<String>::new());
                    operation.security = Some(vec![needs]);
                    if let Access::Known { .. } = access {
                        let note = access.in_words();
                        let before = operation.description.take().map(|text| format!("{text}\n\n"));
                        operation.description = Some(format!("{}{note}", before.unwrap_or_default()));
                    }
                }
            }
        }
        router = router.routes(endpoint);
    }
    router.into_openapi()
}

/// The description as text, as it is committed.
pub(crate) fn text() -> String {
    // A document of strings and lists can be written.
    let mut text = document().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;

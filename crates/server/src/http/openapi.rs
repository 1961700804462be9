//! What the API is, as OpenAPI 3.1: from the routes themselves, and from the shapes below.
//!
//! Invariant: `docs/openapi.json` is this document, and every shape here is what `crate::json` writes; tests compare both.
//! Not here: the answers themselves (`crate::json`).

mod shapes;

use std::collections::BTreeSet;

use utoipa::OpenApi as _;
use utoipa::openapi::schema::{AdditionalProperties, ArrayItems};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, InfoBuilder, License, OpenApi, RefOr, Schema};
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
    let mut document = router.into_openapi();
    close_bodies(&mut document);
    document
}

/// A body is read strictly, so what it may hold is what its shape names, and nothing else.
fn close_bodies(document: &mut OpenApi) {
    let Some(components) = document.components.as_mut() else { return };
    let items = document.paths.paths.values();
    let operations = items.flat_map(|item| [&item.get, &item.post, &item.patch, &item.put, &item.delete]);
    let bodies = operations.flatten().filter_map(|operation| match operation.request_body.as_ref()? {
        RefOr::T(body) => Some(body.content.values()),
        RefOr::Ref(_) => None,
    });
    let mut open: Vec<String> = Vec::new();
    for content in bodies.flatten() {
        if let RefOr::T(content) = content
            && let Some(RefOr::Ref(shape)) = &content.schema
        {
            open.push(shape.ref_location.clone());
        }
    }
    let mut closed = BTreeSet::new();
    while let Some(place) = open.pop() {
        let Some(name) = place.strip_prefix("#/components/schemas/") else { continue };
        if let Some(shape) = components.schemas.get_mut(name)
            && closed.insert(place.clone())
        {
            close(shape, &mut open);
        }
    }
}

/// Closes a shape, and collects what it refers to. A map of any names stays one.
fn close(shape: &mut RefOr<Schema>, open: &mut Vec<String>) {
    match shape {
        RefOr::Ref(reference) => open.push(reference.ref_location.clone()),
        RefOr::T(Schema::Object(object)) => {
            object.properties.values_mut().for_each(|part| close(part, open));
            if !object.properties.is_empty() && object.additional_properties.is_none() {
                object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
            }
        }
        RefOr::T(Schema::Array(array)) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                close(items, open);
            }
        }
        RefOr::T(Schema::OneOf(parts)) => parts.items.iter_mut().for_each(|part| close(part, open)),
        RefOr::T(Schema::AnyOf(parts)) => parts.items.iter_mut().for_each(|part| close(part, open)),
        // Parts that are one object together cannot be closed each by itself.
        RefOr::T(_) => {}
    }
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

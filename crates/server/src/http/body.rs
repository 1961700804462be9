//! Bodies: one JSON object, read strictly or not at all.
//!
//! Invariant: no doubled key, no unknown field, no integer that lost a digit, nothing after the end; at most 4 MiB, depth
//! 64, and 30 seconds to arrive. What a handler gets is typed. A digest of the whole says whether two bodies ask for the
//! same.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use countersign::{ARGUMENTS_BYTES_MAX, Arguments, ArgumentsError, Digest};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::App;
use super::problem::{Answer, Problem};

/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// A typed body.
#[derive(Debug)]
pub(crate) struct Json<T> {
    /// What it says.
    pub(crate) body: T,
    /// Of its canonical form.
    pub(crate) digest: Digest,
}

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Answer<Self> {
        is_json(request.headers())?;
        let object = object(&arrived(request.into_body(), app).await?)?;
        let digest = Digest::of(object.canonical().as_bytes());
        Ok(Self { body: typed(object.to_value())?, digest })
    }
}

/// A request that needs no body: none, or an empty object.
#[derive(Debug)]
pub(crate) struct NoBody;

impl FromRequest<App> for NoBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Answer<Self> {
        let is_typed = is_json(request.headers());
        let bytes = arrived(request.into_body(), app).await?;
        if bytes.is_empty() {
            return Ok(Self);
        }
        is_typed?;
        match object(&bytes)?.members().keys().next() {
            None => Ok(Self),
            Some(name) => Err(unknown_fields(&[format!("/{}", pointer_part(name))])),
        }
    }
}

/// A web page of somebody else can send a text or a form without being asked first, but no JSON.
fn is_json(headers: &HeaderMap) -> Answer<()> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (kind, parameters) = given.split_once(';').unwrap_or((given, ""));
    let parameters = parameters.trim().to_ascii_lowercase();
    let is_utf8 = ["", "charset=utf-8", "charset=\"utf-8\""].contains(&parameters.as_str());
    if kind.trim().eq_ignore_ascii_case("application/json") && is_utf8 {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "the body must be JSON: send it with Content-Type: application/json",
    ))
}

async fn arrived(body: Body, app: &App) -> Answer<Vec<u8>> {
    let clock = app.clock();
    tokio::select! {
        bytes = to_bytes(body, ARGUMENTS_BYTES_MAX) => match bytes {
            Ok(bytes) => Ok(bytes.to_vec()),
            // Whoever went away does not read the answer.
            Err(_) => Err(too_large()),
        },
        () = clock.sleep(PATIENCE) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "too_slow",
            format!("the body did not arrive within {} s", PATIENCE.as_secs()),
        )),
    }
}

fn too_large() -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        format!("a body is at most {ARGUMENTS_BYTES_MAX} bytes long"),
    )
}

fn object(bytes: &[u8]) -> Answer<Arguments> {
    let malformed = |detail: String| Problem::invalid("malformed", detail);
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("the body is not UTF-8".to_owned()))?;
    // For a model nothing means no arguments; for a body it is nothing (A5).
    let found = match text.trim() {
        "" => Some("nothing"),
        "null" => Some("null"),
        _ => None,
    };
    if let Some(found) = found {
        return Err(malformed(format!("the body must be one JSON object, not {found}")));
    }
    Arguments::read(Some(text)).map_err(|error| match error {
        ArgumentsError::TooLong { .. } => too_large(),
        ArgumentsError::NotAnObject { found } => {
            malformed(format!("the body must be one JSON object, not {found}"))
        }
        ArgumentsError::IntegerOutOfRange { digits } => {
            malformed(format!("the body holds the integer {digits}, which does not fit into 64 bits"))
        }
        ArgumentsError::Unreadable { reason } => malformed(format!("the body is not valid JSON: {reason}")),
    })
}

/// The typed form of an object; every field must be known, wherever it stands.
pub(crate) fn typed<T: DeserializeOwned>(object: Value) -> Answer<T> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let source = serde_path_to_error::Deserializer::new(object, &mut track);
    let read: Result<T, serde_json::Error> =
        serde_ignored::deserialize(source, |path| unknown.push(pointer(&path)));
    if !unknown.is_empty() {
        return Err(unknown_fields(&unknown));
    }
    read.map_err(|error| {
        let at: String = track.path().iter().map(segment).collect();
        Problem::invalid_at("invalid_field", &at, error.to_string())
    })
}

fn unknown_fields(pointers: &[String]) -> Problem {
    let errors: Vec<Value> =
        pointers.iter().map(|at| json!({ "pointer": at, "detail": "this field is not known" })).collect();
    Problem::invalid(
        "unknown_field",
        format!("the body has fields that are not known: {}", pointers.join(", ")),
    )
    .with("errors", errors.into())
}

fn segment(segment: &serde_path_to_error::Segment) -> String {
    use serde_path_to_error::Segment;
    match segment {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } => format!("/{}", pointer_part(key)),
        Segment::Enum { .. } | Segment::Unknown => String::new(),
    }
}

fn pointer(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}/{index}", pointer(parent)),
        Path::Map { parent, key } => format!("{}/{}", pointer(parent), pointer_part(key)),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            pointer(parent)
        }
    }
}

/// A name as a part of a JSON pointer.
pub(crate) fn pointer_part(name: &str) -> String {
    name.chars().take(200).collect::<String>().replace('~', "~0").replace('/', "~1")
}

/// A field that is there and says `null`, or a value; one that is not there is an error.
pub(crate) fn must_be_said<'de, T, D>(source: D) -> Result<Option<T>, D::Error>
where
    T: serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    serde::Deserialize::deserialize(source)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Outer {
        name: String,
        inner: Option<Vec<Inner>>,
        #[serde(deserialize_with = "must_be_said")]
        said: Option<bool>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Inner {
        id: u8,
    }

    fn code(text: &str) -> &'static str {
        match object(text.as_bytes()).and_then(|object| typed::<Outer>(object.to_value())) {
            Ok(_) => "",
            Err(problem) => problem.code(),
        }
    }

    #[test]
    fn case_c16_a_body_is_read_strictly() {
        for (text, expected) in [
            (r#"{"name":"a","said":null}"#, ""),
            (r#"{"name":"a","inner":[{"id":1}],"said":true}"#, ""),
            (r#"{"name":"a","name":"b","said":null}"#, "malformed"),
            (r#"{"name":"a","said":null} x"#, "malformed"),
            (r#"["name"]"#, "malformed"),
            ("", "malformed"),
            ("null", "malformed"),
            (r#"{"name":"a"}"#, "invalid_field"),
            (r#"{"name":7,"said":null}"#, "invalid_field"),
            (r#"{"name":"a","said":null,"x":1}"#, "unknown_field"),
            (r#"{"name":"a","inner":[{"id":1,"x":1}],"said":null}"#, "unknown_field"),
            (r#"{"name":"a","said":null,"n":18446744073709551616}"#, "malformed"),
        ] {
            assert_eq!(code(text), expected, "{text}");
        }
    }

    #[test]
    fn only_json_is_json() {
        let headers = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            headers
        };
        for good in ["application/json", "Application/JSON; charset=UTF-8"] {
            assert!(is_json(&headers(good)).is_ok(), "{good}");
        }
        for bad in ["", "text/plain", "application/json; charset=latin-1", "multipart/form-data; boundary=x"]
        {
            assert!(is_json(&headers(bad)).is_err(), "{bad}");
        }
        assert!(is_json(&HeaderMap::new()).is_err());
    }
}

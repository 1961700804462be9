//! Between a tool's own types and the JSON of the port: what the attribute `tool` writes its code with.
//!
//! Invariant: the schema of a type admits no field that the type does not have, and a type is read from exactly
//! the text that was shown, hashed and approved (A5). What the type refuses although its schema let it
//! pass ends as an error result before anything was done. Whoever implements [`Tool`](crate::Tool) by hand may
//! use the same functions.
//!
//! Not here: checking arguments against a schema (the registry), merging in what a person filled in (the judge).

use countersign_core::Arguments;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::tool::ToolError;

pub use schemars::{self, JsonSchema};
pub use serde::{self, Deserialize};

/// The JSON Schema of a type, as a model or a person is to fill it: an object without other fields than the
/// type's. The type's own name is not in it, so that renaming the type leaves the tool what it was (A6).
///
/// ```
/// use countersign::typed::schema;
/// use serde_json::json;
///
/// #[countersign::arguments]
/// struct Page {
///     /// The number of the page.
///     id: u32,
/// }
///
/// assert_eq!(
///     schema::<Page>(),
///     json!({
///         "type": "object",
///         "properties": {
///             "id": {
///                 "type": "integer", "minimum": 0, "maximum": u32::MAX, "description": "The number of the page."
///             }
///         },
///         "required": ["id"],
///         "additionalProperties": false
///     })
/// );
/// ```
pub fn schema<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.meta_schema = None;
            // Not every model follows references.
            settings.inline_subschemas = true;
        })
        .with_transform(schemars::transform::RecursiveTransform(bounds_for_formats));
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    close(schema.ensure_object());
    schema.to_value()
}

/// Says in words of the standard what the number formats of Rust mean, so that what does not fit is refused
/// before a person is asked. What 64 bits cannot hold is no integer to a type, whatever the type, but one to the
/// standard, such as `1e20` (A5).
fn bounds_for_formats(schema: &mut schemars::Schema) {
    let Some(format) = schema.get("format").and_then(Value::as_str) else { return };
    let [minimum, maximum]: [Option<Value>; 2] = match format {
        "int32" => [Some(i32::MIN.into()), Some(i32::MAX.into())],
        "uint32" => [Some(0.into()), Some(u32::MAX.into())],
        "int64" | "int" => [Some(i64::MIN.into()), Some(i64::MAX.into())],
        "int128" => [Some(i64::MIN.into()), Some(u64::MAX.into())],
        "uint64" | "uint" | "uint128" => [Some(0.into()), Some(u64::MAX.into())],
        "float" => [Some(f32::MIN.into()), Some(f32::MAX.into())],
        "int8" | "int16" | "uint8" | "uint16" | "double" => [None, None],
        _ => return,
    };
    schema.remove("format");
    for (word, bound) in [("minimum", minimum), ("maximum", maximum)] {
        if let (Some(bound), None) = (bound, schema.get(word)) {
            schema.insert(word.to_owned(), bound);
        }
    }
}

/// Closes a schema against fields that it does not name.
fn close(schema: &mut Map<String, Value>) {
    schema.remove("title");
    schema.entry("type").or_insert_with(|| "object".into());
    if schema.contains_key("additionalProperties") || schema.contains_key("unevaluatedProperties") {
        return;
    }
    // Fields that stand in a part are no additional ones to the standard only in the second word.
    let has_parts = ["$ref", "allOf", "anyOf", "oneOf"].iter().any(|part| schema.contains_key(*part));
    let word = if has_parts { "unevaluatedProperties" } else { "additionalProperties" };
    schema.insert(word.to_owned(), false.into());
}

/// Reads arguments into a type, from the text that a tool is sent (A5).
///
/// # Errors
/// [`ToolFailure::NotSent`](crate::ToolFailure::NotSent), with a sentence for the model, when the type refuses them.
pub fn read<T: DeserializeOwned>(arguments: &Arguments) -> Result<T, ToolError> {
    serde_json::from_str(&arguments.text())
        .map_err(|error| ToolError::not_sent(format!("Not run: the arguments cannot be used: {error}.")))
}

/// Reads the arguments of a tool that needs input: the model's type, and the type that a person filled in. Each
/// is given the fields that its own schema names (R9).
///
/// # Errors
/// As [`read`].
pub fn read_with_input<T, I>(arguments: &Arguments) -> Result<(T, I), ToolError>
where
    T: DeserializeOwned + JsonSchema,
    I: DeserializeOwned + JsonSchema,
{
    let (asked, filled_in) = (schema::<T>(), schema::<I>());
    let is_of = |schema: &Value, name: &str| schema["properties"].get(name).is_some();
    // A field of both types is the model's proposal and the person's word on it: both see the word.
    let rest = arguments.only(|name| is_of(&asked, name) || !is_of(&filled_in, name));
    let input = arguments.only(|name| is_of(&filled_in, name));
    Ok((read(&rest)?, read(&input)?))
}

/// What only the code that the attribute `tool` writes should call.
#[doc(hidden)]
pub mod written {
    use std::str::FromStr;

    use countersign_core::NotAName;

    pub use async_trait::async_trait;

    /// A name of the program's own text.
    #[expect(
        clippy::expect_used,
        reason = "an assertion beside each call stops the compiler at what is no name"
    )]
    pub fn name<N: FromStr<Err = NotAName>>(checked: &'static str) -> N {
        checked.parse().expect("a name that was checked when the program was compiled")
    }
}

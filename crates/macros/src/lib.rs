//! # The attributes `tool` and `arguments` of countersign
//!
//! A tool is a type, a struct of arguments and one async function; these attributes write the rest. Use them from the
//! crate `countersign`, which the code that they write refers to by that name: a program that calls it otherwise in its
//! `Cargo.toml` says `extern crate otherwise as countersign;` in its root. Worked examples are in its documentation, at the
//! trait `Tool`.
//!
//! Invariant: nothing about a tool is guessed. A fact that decides whether a person is asked has no default, and what
//! could never run does not compile.
//!
//! Not here: what the written code does when it runs (`countersign::typed`).

use proc_macro::TokenStream;

mod arguments;
mod facts;
mod tool;

/// Makes a tool of a type: stands on the `impl` block that has the tool's `call`, and writes the `impl Tool`.
///
/// The block begins with a comment, which is what the model is told, and `#[tool(group = "content", effect = write)]`;
/// then `async fn call(&self, page: Page, cx: &CallContext) -> Result<ToolOutput, ToolError>`.
///
/// | fact | | |
/// |---|---|---|
/// | `group` | must be said | the family it is switched with (G1) |
/// | `effect` | must be said | `read`, `idempotent_write` or `write`: whether a person is asked, and whether it may run twice (A2) |
/// | `data_class` | `secret_adjacent` | which models may be shown what it answers (P6), in the words of the configuration |
/// | `name` | the type's, as `page_drop` | what the model calls |
/// | `approval` | the effect decides | `ask`: a person is asked also for a read (A1) |
/// | `requires_admin` | `false` | whether only administrators' runs may use it (P3) |
/// | `enabled` | `true` | whether it is on while no switch says otherwise (G3) |
/// | `timeout` | 30 seconds | how long one call may take: a `Duration` |
///
/// The functions say the rest:
///
/// - **`call`** takes the arguments by value, in a type with the attribute [`macro@arguments`].
/// - **`preview`** is optional. What it shows is what a person sees before they decide, and the `precondition` that it
///   returns comes back in the call's context (A7).
/// - **A second type in `call`** is typed input: `call(&self, order: Order, stay: Stay, cx: &CallContext)`. The model
///   writes an `Order`, a person is asked for a `Stay`, and the call has both (R9). A tool that writes, or asks for
///   approval, cannot have it (A3): that does not compile.
///
/// The documentation comment of the block is what the model is told, so there must be one. All other items of the block
/// stay as they are, and what the tool needs to work with is in the type's own fields.
#[proc_macro_attribute]
pub fn tool(facts: TokenStream, item: TokenStream) -> TokenStream {
    tool::expand(facts.into(), item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes arguments of a type: derives `Deserialize` and `JsonSchema`, and admits no fields but its own (A5).
///
/// Documentation comments become descriptions in the schema. The attributes of `serde` and `schemars` work on the fields,
/// for instance `#[serde(default)]` and `#[schemars(range(min = 1))]`. What it is put on, and each type in it, needs no
/// import. A type that has both derives already does without, and then says `#[serde(deny_unknown_fields)]` itself.
#[proc_macro_attribute]
pub fn arguments(words: TokenStream, item: TokenStream) -> TokenStream {
    arguments::expand(words.into(), item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

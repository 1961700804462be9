//! The parameters behind the `?`, and pages.
//!
//! Invariant: an unknown parameter, one that is given twice and one that cannot be read are refused, never passed over.
//! A cursor leads on in the list that gave it, and in no other.

use axum::extract::{FromRequestParts, Query};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde_json::{Value, json};

use super::problem::{Answer, Problem};

/// How many items a page has, where nobody says otherwise.
const LIMIT_DEFAULT: usize = 50;
/// The most items of a page.
const LIMIT_MAX: usize = 200;

/// The parameters of one request, each to be taken once.
#[derive(Debug)]
pub(crate) struct Params(Vec<(String, String)>);

/// `limit` and `cursor`, as every list describes them; [`Params::page`] reads them.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "a description, which nobody makes")]
pub(crate) struct PageParams {
    /// The most items, from 1 to 200.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// Which page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    list: &'static str,
    /// At most so many items.
    pub(crate) limit: usize,
    /// Where the one before ended, in the list's own words.
    pub(crate) after: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Answer<Self> {
        match Query::<Vec<(String, String)>>::try_from_uri(&parts.uri) {
            Ok(Query(pairs)) => Ok(Self(pairs)),
            Err(_) => {
                Err(Problem::invalid("invalid_parameter", "the parameters behind the ? cannot be read"))
            }
        }
    }
}

impl Params {
    /// A parameter, read by `read`.
    pub(crate) fn take<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Answer<Option<T>> {
        let given = self.0.iter().filter(|(given, _)| given == name).count();
        let Some(at) = self.0.iter().position(|(given, _)| given == name) else { return Ok(None) };
        let (_, value) = self.0.remove(at);
        match read(&value).filter(|_| given == 1) {
            Some(value) => Ok(Some(value)),
            None => Err(invalid(name, "its value cannot be read, or it is given twice")),
        }
    }

    /// `limit` and `cursor` of this list.
    pub(crate) fn page(&mut self, list: &'static str) -> Answer<Page> {
        let limit =
            self.take("limit", |text| text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit)));
        let limit = limit.map_err(|_| invalid("limit", &format!("it must be from 1 to {LIMIT_MAX}")))?;
        let cursor =
            self.take("cursor", |text| text.strip_prefix(list)?.strip_prefix('~').map(str::to_owned));
        let after = cursor.map_err(|_| {
            Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "invalid_cursor",
                "a cursor is the `next` of the page before, of the same list",
            )
        })?;
        Ok(Page { list, limit: limit.unwrap_or(LIMIT_DEFAULT), after })
    }

    /// That was all that is known.
    pub(crate) fn done(self) -> Answer<()> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(64).collect();
                Err(Problem::invalid(
                    "unknown_parameter",
                    format!("the parameter {name:?} is not known here"),
                ))
            }
        }
    }
}

fn invalid(name: &str, why: &str) -> Problem {
    Problem::invalid("invalid_parameter", format!("the parameter {name}: {why}"))
}

impl Page {
    /// The answer, given these items and where they end in the list's own words.
    pub(crate) fn of(&self, items: &[Value], next: Option<&str>) -> Value {
        json!({ "items": items, "next": next.map(|next| format!("{}~{next}", self.list)) })
    }

    /// The answer, cut from a whole list that is in the order of its keys.
    pub(crate) fn cut<K: AsRef<str>>(&self, all: impl IntoIterator<Item = (K, Value)>) -> Value {
        let after = |key: &K| self.after.as_deref().is_none_or(|after| key.as_ref() > after);
        let mut found = all.into_iter().filter(|(key, _)| after(key));
        let mut last = None;
        let mut items = Vec::new();
        for (key, item) in found.by_ref().take(self.limit) {
            last = Some(key.as_ref().to_owned());
            items.push(item);
        }
        self.of(&items, found.next().and(last).as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(query: &str) -> Params {
        let uri = format!("/x?{query}").parse().unwrap();
        Params(Query::<Vec<(String, String)>>::try_from_uri(&uri).unwrap().0)
    }

    #[test]
    fn parameters_are_known_and_given_once() {
        let mut good = params("status=open&limit=7");
        assert_eq!(good.take("status", |text| Some(text.to_owned())).unwrap().as_deref(), Some("open"));
        assert_eq!(good.page("runs").unwrap(), Page { list: "runs", limit: 7, after: None });
        good.done().unwrap();
        assert_eq!(params("stauts=open").done().unwrap_err().code(), "unknown_parameter");
        let twice = params("a=1&a=2").take("a", |text| Some(text.to_owned())).unwrap_err();
        assert_eq!(twice.code(), "invalid_parameter");
        for limit in ["0", "201", "-1", "x", ""] {
            assert_eq!(
                params(&format!("limit={limit}")).page("runs").unwrap_err().code(),
                "invalid_parameter"
            );
        }
    }

    #[test]
    fn a_cursor_leads_on_in_its_own_list_only() {
        let all = || ["a", "b", "c"].map(|key| (key, Value::from(key)));
        let first = params("limit=2").page("tools").unwrap().cut(all());
        assert_eq!(first, json!({ "items": ["a", "b"], "next": "tools~b" }));
        let second = params("limit=2&cursor=tools~b").page("tools").unwrap().cut(all());
        assert_eq!(second, json!({ "items": ["c"], "next": null }));
        assert_eq!(params("cursor=tools~b").page("groups").unwrap_err().code(), "invalid_cursor");
    }
}

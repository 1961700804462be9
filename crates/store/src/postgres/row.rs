//! A row of PostgreSQL, for whoever reads rows of any database.

use std::error::Error;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::row::{self, Value};

impl row::Row for Row {
    fn value(&self, column: &'static str) -> Result<Value<'_>, Box<dyn Error + Send + Sync>> {
        let Cell(value) = self.try_get(column)?;
        Ok(value)
    }
}

/// A cell of whichever type, as it lies in the answer.
struct Cell<'r>(Value<'r>);

impl<'r> FromSql<'r> for Cell<'r> {
    fn from_sql(kind: &Type, raw: &'r [u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self(match *kind {
            Type::TEXT => Value::Text(raw),
            Type::BYTEA => Value::Bytes(raw),
            Type::INT8 => Value::Number(i64::from_be_bytes(raw.try_into()?)),
            _ => Value::Other,
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self(Value::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

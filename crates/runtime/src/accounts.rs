//! The port to who is known, and to their tokens (S1).
//!
//! Invariant: the loop needs none of this; it asks a look of the store for the rights of the moment. This is for whoever
//! lets people and programs in. Every store that has it passes the same suite (`contract`).

use async_trait::async_trait;
use countersign_core::{Principal, Subject, TokenId};
use jiff::Timestamp;

use crate::store::{Page, StoreFault};
use crate::token::TokenRow;

/// Somebody as a list of people shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Who, with which rights.
    pub principal: Principal,
    /// Since when they do not resolve: no right of any kind, and their tokens open nothing.
    pub disabled_at: Option<Timestamp>,
}

/// Who is known, and which tokens there are. A principal is made or changed with
/// [`Store::put_principal`](crate::Store::put_principal).
#[async_trait]
pub trait Accounts: Send + Sync + std::fmt::Debug {
    /// A page of people and programs, by subject, those that are disabled too. What cannot be read is left out.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn accounts(&self, limit: usize, cursor: Option<&str>) -> Result<Page<Account>, StoreFault>;

    /// One of them, whether or not they are disabled. Whoever cannot be read is not there.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn account(&self, subject: &Subject) -> Result<Option<Account>, StoreFault>;

    /// Lets a principal resolve no longer, until it is stored anew. `false`: there is none.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn disable_principal(&self, subject: &Subject, now: Timestamp) -> Result<bool, StoreFault>;

    /// Stores a new token.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn put_token(&self, token: &TokenRow) -> Result<(), StoreFault>;

    /// A token by its id, whether or not it is still good. One that cannot be read is not there.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn token(&self, id: &TokenId) -> Result<Option<TokenRow>, StoreFault>;

    /// A page of tokens, oldest first. What cannot be read is left out.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn tokens(&self, limit: usize, cursor: Option<&str>) -> Result<Page<TokenRow>, StoreFault>;

    /// Makes a token open nothing any more; the first time counts. `false`: there is none of this id.
    ///
    /// # Errors
    /// [`StoreFault`].
    async fn revoke_token(&self, id: &TokenId, now: Timestamp) -> Result<bool, StoreFault>;
}

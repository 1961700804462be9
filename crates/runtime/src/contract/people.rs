//! People, tokens, and the keys under which runs are started once.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_core::{Changes, Digest, Principal, Run, Scope, TokenId};
use tokio::task::JoinSet;

use super::sample::*;
use super::{Harness, done};
use crate::accounts::Account;
use crate::store::{StartKey, StartedBefore, Store};
use crate::token::TokenRow;

fn token(number: u8, name: &str) -> TokenRow {
    TokenRow {
        id: TokenId::from_random([number; 16]),
        subject: subject(name),
        hash: [number; 32],
        created_at: at(i64::from(number)),
        revoked_at: None,
    }
}

fn key(starter: &str, key: &str, body: &str) -> StartKey {
    StartKey { starter: subject(starter), key: key.to_owned(), body: Digest::of(body.as_bytes()) }
}

fn new_run(number: u8) -> Changes {
    done(Run::create(run_id(number), created("default", "alice"), Vec::new(), at(i64::from(number)))).1
}

pub async fn rule_s1_people_are_paged_and_keep_their_scopes<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let accounts = harness.accounts();
    let ci = Principal::service(subject("ci"), [Scope::RunCreate, Scope::PendingRead].into_iter().collect());
    let people = [
        Principal::admin(subject("root")),
        ci,
        Principal::approver(subject("bob")),
        Principal::service(subject("nothing"), [].into_iter().collect()),
        Principal::user(subject("alice")),
    ];
    for principal in &people {
        done(store.put_principal(principal).await);
    }
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = done(accounts.accounts(2, cursor.as_deref()).await);
        assert!(page.items.len() <= 2);
        found.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let account = |index: usize| Account { principal: people[index].clone(), disabled_at: None };
    assert_eq!(found, [4, 2, 1, 3, 0].map(account), "by subject, each once");
    assert_eq!(done(accounts.account(&subject("ci")).await), Some(account(1)));
    assert_eq!(done(accounts.account(&subject("c")).await), None);
}

pub async fn rule_s1_who_is_disabled_does_not_resolve_until_stored_anew<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let accounts = harness.accounts();
    let bob = Principal::approver(subject("bob"));
    assert!(
        !done(accounts.disable_principal(&bob.subject, at(1)).await),
        "nobody is disabled who is not there"
    );
    done(store.put_principal(&bob).await);
    assert!(done(accounts.disable_principal(&bob.subject, at(1)).await));
    assert!(done(accounts.disable_principal(&bob.subject, at(2)).await));
    drop((store, accounts));
    let harness = harness.reopened().await;
    let store = harness.store();
    let accounts = harness.accounts();
    let asked = [bob.subject.clone()];
    assert_eq!(done(store.look(&asked).await).people.find(&bob.subject), None);
    let accounts = done(accounts.accounts(10, None).await).items;
    assert_eq!(accounts, [Account { principal: bob.clone(), disabled_at: Some(at(1)) }]);
    done(store.put_principal(&bob).await);
    assert_eq!(done(store.look(&asked).await).people.find(&bob.subject), Some(&bob));
}

pub async fn rule_s1_a_token_is_kept_until_it_is_revoked<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let accounts = harness.accounts();
    let (one, two) = (token(1, "alice"), token(2, "alice"));
    done(store.put_principal(&Principal::user(subject("alice"))).await);
    done(accounts.put_token(&one).await);
    done(accounts.put_token(&two).await);
    assert_eq!(done(accounts.token(&one.id).await), Some(one.clone()));
    assert_eq!(done(accounts.token(&token(3, "alice").id).await), None);
    assert!(!done(accounts.revoke_token(&token(3, "alice").id, at(4)).await));
    assert!(done(accounts.revoke_token(&one.id, at(5)).await));
    assert!(done(accounts.revoke_token(&one.id, at(6)).await));
    drop((store, accounts));
    let harness = harness.reopened().await;
    let accounts = harness.accounts();
    let revoked = TokenRow { revoked_at: Some(at(5)), ..one };
    assert_eq!(done(accounts.token(&revoked.id).await), Some(revoked), "the first time counts");
    assert_eq!(done(accounts.token(&two.id).await), Some(two), "another token is another token");
}

pub async fn tokens_are_paged_oldest_first_without_gaps_or_repeats<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let accounts = harness.accounts();
    done(store.put_principal(&Principal::user(subject("alice"))).await);
    let all: Vec<TokenRow> = [5, 3, 4, 1, 2].map(|number| token(number, "alice")).to_vec();
    for token in &all {
        done(accounts.put_token(token).await);
    }
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = done(accounts.tokens(2, cursor.as_deref()).await);
        found.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, all);
    assert!(done(accounts.tokens(2, Some("nonsense")).await).items.is_empty());
}

pub async fn a_start_key_starts_one_run<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let first = key("alice", "order-7", "drop page 7");
    assert_eq!(done(store.started(&first).await), None);
    assert_eq!(done(store.create_once(new_run(1), &first).await), None);
    drop(store);
    let harness = harness.reopened().await;
    let store = harness.store();
    let same = Some(StartedBefore::Same(run_id(1)));
    assert_eq!(done(store.started(&first).await), same);
    assert_eq!(done(store.create_once(new_run(2), &first).await), same);
    let other_body = key("alice", "order-7", "drop page 8");
    assert_eq!(done(store.started(&other_body).await), Some(StartedBefore::OtherBody));
    assert_eq!(done(store.create_once(new_run(2), &other_body).await), Some(StartedBefore::OtherBody));
    assert!(store.run(&run_id(2), at(9)).await.is_err(), "nothing was stored");
    assert_eq!(done(store.create_once(new_run(2), &key("bob", "order-7", "drop page 7")).await), None);
    assert_eq!(done(store.create_once(new_run(3), &key("alice", "order-8", "drop page 7")).await), None);
}

pub async fn of_twenty_starts_with_one_key_one_wins<H: Harness>() {
    let harness = H::fresh().await;
    let store = harness.store();
    let mut starts = JoinSet::new();
    for number in 1..=20 {
        let store: Arc<dyn Store> = Arc::clone(&store);
        starts.spawn(async move {
            let key = key("alice", "order-7", "drop page 7");
            match done(store.create_once(new_run(number), &key).await) {
                None => run_id(number),
                Some(StartedBefore::Same(run)) => run,
                Some(StartedBefore::OtherBody) => run_id(0),
            }
        });
    }
    let named: BTreeSet<_> = starts.join_all().await.into_iter().collect();
    assert_eq!(named.len(), 1, "{named:?}");
}

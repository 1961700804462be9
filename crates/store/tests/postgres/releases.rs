//! Beside a newer countersign on one database, and after it; and with an account that may not change its tables.

use std::sync::Arc;

use countersign::contract::sample::{at, start};
use countersign::{Clock, Store, SystemClock};
use countersign_store::{MasterKey, OpenError, PostgresStore, Upkeep};

use crate::both::{ADDS, CHANGES, FOR_ITS_OWN, LEASE, claim, goes_on, is_refused, stands_still};
use crate::support::{KEY, Place};

/// Does what a newer program does when it opens the database.
fn migrate(place: &Place, statements: &str, schema: u32) {
    place.change(&format!("BEGIN; {statements}; UPDATE schema_version SET version = {schema}; COMMIT"));
}

#[tokio::test]
async fn rule_r2_the_release_before_goes_on_when_the_next_one_has_added_to_the_database() {
    let place = Place::new().await;
    let running = place.open().await;
    goes_on(&running, 1).await;
    start(&running, 9).await;
    let held = claim(&running, 9).await.unwrap().unwrap();
    let next = running.schema_known() + 1;
    migrate(&place, ADDS, next);
    assert!(running.heartbeat(&held, at(10), LEASE).await.unwrap());
    goes_on(&running, 11).await;
    // It may also be started again, or be gone back to.
    let again = place.open().await;
    assert_eq!((again.schema_version(), again.schema_known()), (next, next - 1));
    goes_on(&again, 21).await;
    goes_on(&running, 31).await;
}

#[tokio::test]
async fn rule_r2_a_newer_schema_that_is_not_for_us_is_refused_and_left_alone() {
    let place = Place::new().await;
    let running = place.open().await;
    start(&running, 9).await;
    let held = claim(&running, 9).await.unwrap().unwrap();
    start(&running, 10).await;
    let next = running.schema_known() + 1;
    migrate(&place, &format!("{CHANGES}; {FOR_ITS_OWN}{next}"), next);
    stands_still(&running, &held).await;
    // Also before the key is looked at.
    for key in [KEY, [8; 32]] {
        is_refused(place.try_open(key).await, next);
    }
    assert_eq!(place.change("SELECT version FROM schema_version"), format!("{next}\n"));
}

#[tokio::test]
async fn rule_r2_a_newer_schema_that_names_nobody_is_refused() {
    let place = Place::new().await;
    let next = place.open().await.schema_known() + 1;
    migrate(&place, "ALTER TABLE schema_version DROP COLUMN readable_from", next);
    is_refused(place.try_open(KEY).await, next);
}

#[tokio::test]
async fn rule_r2_a_database_that_does_not_say_for_whom_it_is_says_so_after_an_upgrade() {
    let place = Place::new().await;
    start(&place.open().await, 1).await;
    migrate(&place, "ALTER TABLE schema_version DROP COLUMN readable_from; DROP TABLE probe", 9);
    let store = place.open().await;
    assert_eq!(store.schema_version(), store.schema_known());
    assert_eq!(place.change("SELECT version, readable_from FROM schema_version"), "10|10\n");
}

/// The rights that the page about deployment gives to the account of the processes.
const RIGHTS: &str = "\
    GRANT USAGE ON SCHEMA countersign TO agents; \
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA countersign TO agents; \
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA countersign TO agents; \
    ALTER DEFAULT PRIVILEGES IN SCHEMA countersign GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO agents; \
    ALTER DEFAULT PRIVILEGES IN SCHEMA countersign GRANT USAGE ON SEQUENCES TO agents;";

#[tokio::test]
async fn an_account_that_may_not_change_tables_works_and_says_who_must_migrate() {
    let place = Place::new().await;
    place.open().await;
    place.change("CREATE ROLE agents LOGIN");
    place.change(RIGHTS);
    let page = include_str!("../../../../docs/deployment.md");
    for right in RIGHTS.split_inclusive(';') {
        assert!(page.contains(right.trim()), "the page says the same: {right}");
    }
    let open = async || {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        PostgresStore::open(place.address_as("agents"), MasterKey::new(KEY), clock).await
    };
    let working = open().await.unwrap();
    goes_on(&working, 1).await;
    assert_eq!(working.purge(at(200), false).await.unwrap().runs, 1);
    assert!(working.rotate(MasterKey::new([8; 32]), &mut |_| {}).await.is_ok());
    drop(working);

    // A table that comes later is theirs too, if the owner of the others makes it.
    let next = place.try_open([8; 32]).await.unwrap().schema_known() + 1;
    migrate(&place, ADDS, next);
    place.change("SET ROLE agents; SELECT count(*) FROM almanac");

    migrate(&place, "ALTER TABLE schema_version DROP COLUMN readable_from", next - 2);
    match open().await {
        Err(refused @ OpenError::Unmigrated { found, known, .. }) => {
            assert_eq!((found, known), (next - 2, next - 1));
            assert!(refused.to_string().contains("as the account that owns them"), "{refused}");
        }
        other => panic!("{:?}", other.map(drop)),
    }
}

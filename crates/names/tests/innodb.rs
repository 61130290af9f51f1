//! Names of a real MariaDB server's files and indexes. The server's `information_schema` is the oracle.

mod support;

use entresol_names::{Kind, Names, innodb};
use std::os::unix::fs::FileExt;
use support::MariaDb;

const TABLES: &str = "CREATE DATABASE shop; CREATE DATABASE `my-shop`; \
    CREATE TABLE shop.orders (id INT PRIMARY KEY, what VARCHAR(40), INDEX by_what (what)) ENGINE=InnoDB; \
    CREATE TABLE `my-shop`.`a b` (i INT) ENGINE=InnoDB; \
    CREATE TABLE shop.yearly (id INT, year INT) ENGINE=InnoDB PARTITION BY RANGE (year) \
    (PARTITION p2023 VALUES LESS THAN (2024), PARTITION p2024 VALUES LESS THAN (2025)); \
    USE shop; INSERT INTO orders SELECT seq, md5(seq) FROM seq_1_to_20000;";

/// Waits until the server has written all dirty pages to its files.
fn settle(server: &MariaDb) {
    server.sql("SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0; SET GLOBAL innodb_max_dirty_pages_pct = 0");
    support::eventually("everything is written", || {
        server.sql("SHOW STATUS LIKE 'Innodb_buffer_pool_pages_dirty'").ends_with("\t0")
    });
}

#[test]
fn files_and_pages_have_the_names_that_the_server_gives_them() {
    let Some(mut server) = MariaDb::start("innodb_buffer_pool_size=32M") else { return };
    server.sql(TABLES);
    settle(&server);
    let mut names = Names::find(&server.scratch.path("")).expect("a directory");
    let troubles: Vec<_> = names.troubles().map(|(place, kind, trouble)| (place, kind, trouble.is_none())).collect();
    assert_eq!(troubles, [("data", "InnoDB", true)]);

    let mut shown = |path: &str| names.name_of(path).map(|name| name.to_string());
    assert_eq!(shown("data/shop/orders.ibd").as_deref(), Some("shop.orders"));
    assert_eq!(shown("data/my@002dshop/a@0020b.ibd").as_deref(), Some("my-shop.a b"));
    assert_eq!(shown("data/shop/yearly#P#p2024.ibd").as_deref(), Some("shop.yearly (p2024)"));
    assert_eq!(shown("data/mysql/db.MAD").as_deref(), Some("mysql.db"));
    assert_eq!(shown("data/shop/db.opt"), None);
    // Every file that InnoDB lists is found under the name of its table.
    let spaces = server.sql("SELECT name FROM information_schema.innodb_sys_tablespaces WHERE name LIKE '%/%'");
    assert!(spaces.lines().count() >= 5, "{spaces}");
    for name in spaces.lines() {
        assert!(names.name_of(&format!("data/{name}.ibd")).is_some(), "{name}");
    }
    assert_every_index_page_is_named(&server, &names);

    // One index is made now, and one is dropped.
    server.sql("CREATE INDEX later ON shop.orders (what, id); DROP INDEX by_what ON shop.orders");
    settle(&server);
    let made = index_pages(&server, "later");
    let before = names.index_of("data/shop/orders.ibd", &made).expect("a page of an index");
    assert!(before.object.starts_with("index "), "{before:?}: its number, until the dictionary is read again");
    names.refresh();
    let after = names.index_of("data/shop/orders.ibd", &made).expect("a page of an index");
    assert_eq!((after.object.as_str(), after.kind, after.of.as_deref()), ("later", Kind::Index, Some("orders")));

    server.stop();
    let left = Names::find(&server.data()).expect("a directory");
    assert_eq!(left.index_of("shop/orders.ibd", &made).map(|name| name.to_string()).as_deref(), Some("shop.later"));
}

fn indexes(server: &MariaDb) -> Vec<(u64, String)> {
    let rows = server.sql(
        "SELECT i.index_id, i.name FROM information_schema.innodb_sys_indexes i \
        JOIN information_schema.innodb_sys_tables t USING (table_id) WHERE t.name = 'shop/orders'",
    );
    let pair = |row: &str| {
        let (id, name) = row.split_once('\t').expect("two columns");
        (id.parse().expect("a number"), name.to_owned())
    };
    rows.lines().map(pair).collect()
}

/// Pages of the table's file.
fn pages(server: &MariaDb) -> Vec<Vec<u8>> {
    let file = std::fs::File::open(server.data().join("shop/orders.ibd")).expect("the table's file");
    let count = file.metadata().expect("its size").len() / 16384;
    let page = |number: u64| {
        let mut page = vec![0; 16384];
        file.read_exact_at(&mut page, number * 16384).expect("a page");
        page
    };
    (0..count).map(page).collect()
}

/// Some page of an index of the table.
fn index_pages(server: &MariaDb, name: &str) -> Vec<u8> {
    let indexes = indexes(server);
    let id = indexes.iter().find(|(_, index)| index == name).unwrap_or_else(|| panic!("{name}")).0;
    let page = pages(server).into_iter().find(|page| innodb::index_id(page) == Some(id));
    page.unwrap_or_else(|| panic!("a page of {name}"))
}

fn assert_every_index_page_is_named(server: &MariaDb, names: &Names) {
    let indexes = indexes(server);
    let mut seen = 0;
    for page in pages(server) {
        let Some(id) = innodb::index_id(&page) else { continue };
        let wanted = indexes.iter().find(|(index, _)| *index == id).unwrap_or_else(|| panic!("index {id}"));
        let name = names.index_of("data/shop/orders.ibd", &page).expect("a page of an index");
        assert_eq!((name.object.as_str(), name.database.as_str()), (wanted.1.as_str(), "shop"));
        seen += 1;
    }
    assert!(seen > 50, "{seen} pages of two indexes");
}

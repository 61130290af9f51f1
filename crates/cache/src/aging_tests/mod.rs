//! The bound on ages in virtual time: no test here waits or reads the system's clock, except the one in real time.

mod testbed;

use super::{BlockCache, Maintenance, Mode};
use crate::Block;
use entresol_core::Random;
use entresol_policy::{Info, catalogue};
use entresol_store::Layout;
use entresol_store::mutant::{self, Mutant};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use testbed::{Cost, Scene, Setup};

const LAYOUTS: [Layout; 2] = [Layout::Log, Layout::Slots];
/// Seconds that the issue allows beyond the bound.
const GRACE: f64 = 1.0;

/// A policy of each family that a live block cache may have.
fn families() -> Vec<&'static Info> {
    let mut families: Vec<&Info> = Vec::new();
    for info in catalogue::ALL.iter().filter(|info| !info.future && info.live.is_empty() && info.tiers.len() <= 2) {
        if families.iter().all(|other| other.family != info.family) {
            families.push(info);
        }
    }
    families
}

/// After the last request all pages are below in time, in any mode, for every family.
fn idle(layout: Layout) -> Result<(), String> {
    for info in families() {
        for (seed, mode) in
            [(1, Mode::WriteBack), (2, Mode::WriteBack), (3, Mode::WriteThrough), (4, Mode::WriteAround)]
        {
            let setup = Setup { mode, ..Setup::new(info, layout, 60, seed) };
            let mut scene = Scene::new(&setup);
            let cache = scene.open(&setup);
            let mut random = Random::new(seed);
            for _ in 0..300 {
                scene.write(&cache, random.below(setup.pages));
                scene.pass(&cache, 0.05);
            }
            if seed == 2 {
                cache.flush().map_err(|error| error.to_string())?;
            }
            scene.pass(&cache, 120.0);
            let what = format!("{}, {layout:?}, {mode:?}, seed {seed}", info.name);
            scene.check(60.0 + GRACE).map_err(|why| format!("{what}: {why}"))?;
            if scene.differing() > 0 {
                return Err(format!("{what}: {} pages are not below", scene.differing()));
            }
            let stats = cache.stats().expect("counts").dirty_age.expect("a bound");
            if stats.oldest.is_some() || stats.late > 0 {
                return Err(format!("{what}: {stats:?}"));
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_dirty_is_below_within_the_bound_though_nothing_is_asked_for() {
    for layout in LAYOUTS {
        idle(layout).unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{:?}", families().iter().map(|info| info.name).collect::<Vec<_>>());
    assert!(families().len() >= 8, "a policy of each family");
}

/// Requests go on, often to a few pages and now and then to many; some pages are overwritten all the time.
fn loaded(layout: Layout) -> Result<(), String> {
    let lru = catalogue::info("lru").expect("a policy");
    for (at, info) in families().into_iter().chain([lru]).enumerate() {
        let seed = 10 + at as u64;
        let setup = Setup::new(info, layout, 30, seed);
        let mut scene = Scene::new(&setup);
        let cache = scene.open(&setup);
        let mut random = Random::new(seed);
        for step in 0..4000 {
            let page = (random.next_f64().powi(4) * setup.pages as f64) as u64;
            if random.chance(0.7) {
                scene.write(&cache, page);
            } else {
                scene.read(&cache, page);
            }
            if step % 97 == 0 {
                cache.flush().map_err(|error| error.to_string())?;
            }
            scene.pass(&cache, 0.03);
        }
        let what = format!("{}, {layout:?}, seed {seed}", info.name);
        scene.check(30.0 + GRACE).map_err(|why| format!("{what}: {why}"))?;
        let stats = cache.stats().expect("counts").dirty_age.expect("a bound");
        // This policy writes every page below long before it is old.
        let writes_itself = info.name == "tac" && stats.oldest.is_none_or(|oldest| oldest < Duration::from_secs(15));
        if (stats.written == 0 && !writes_itself) || stats.late > 0 {
            return Err(format!("{what}: {stats:?}"));
        }
        // A page that LRU keeps, overwritten all the time, is written below at most once in half a bound.
        let most = scene.writes_of(0);
        let bounds = scene.now() / 30.0;
        if info.name == "lru" && most as f64 > 4.0 * bounds + 4.0 {
            return Err(format!("{what}: the hottest page was written below {most} times in {bounds:.1} bounds"));
        }
    }
    Ok(())
}

#[test]
fn what_is_dirty_is_below_within_the_bound_while_requests_go_on() {
    for layout in LAYOUTS {
        loaded(layout).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// More pages become dirty than can be written within the bound: writes wait.
fn overloaded(layout: Layout) -> Result<(), String> {
    for seed in 20..23 {
        // A page takes 20 ms, and so 500 of them 10 s; the cache has space for more.
        let cost = Cost { io_us: 20_000, ..Cost::DISK };
        let setup = Setup { cost, pages: 6000, ..Setup::large(layout, 10, seed) };
        let mut scene = Scene::new(&setup);
        let cache = scene.open(&setup);
        let mut random = Random::new(seed);
        // The maintenance threads are slow, and writes do all the work.
        for _ in 0..3000 {
            scene.write_alone(&cache, random.below(setup.pages));
            scene.idle(0.001);
        }
        scene.pass(&cache, 20.0);
        let what = format!("{layout:?}, seed {seed}");
        scene.check(10.0 + GRACE).map_err(|why| format!("{what}: {why}"))?;
        let stats = cache.stats().expect("counts").dirty_age.expect("a bound");
        if stats.waits == 0 || stats.late > 0 {
            return Err(format!("{what}: {stats:?}"));
        }
    }
    Ok(())
}

#[test]
fn writes_wait_where_the_bound_could_not_be_kept() {
    for layout in LAYOUTS {
        overloaded(layout).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// A process ends, by a kill or in good order, and another goes on with a clock that shows any time. Ages are kept: no
/// page is written before its time, and all are in time.
fn restarted(layout: Layout) -> Result<(), String> {
    for seed in 30..42 {
        let policy = ["lru", "face", "h-arc", "hibachi"][seed as usize % 4];
        let setup = Setup::new(catalogue::info(policy).expect("a policy"), layout, 600, seed);
        let mut scene = Scene::new(&setup);
        let mut random = Random::new(seed);
        // Clocks of processes have nothing in common: this one is a day behind or ahead, or begins anew.
        let days = [0.0, 86_400.0, 200_000.0, 3.0];
        scene.jump(days[random.below(4) as usize]);
        let cache = scene.open(&setup);
        for page in 0..40 {
            scene.write(&cache, page * 7 % setup.pages);
            scene.pass(&cache, 1.0);
        }
        cache.flush().map_err(|error| error.to_string())?;
        // No later write states the time.
        scene.pass(&cache, 200.0);
        let what = format!("{policy}, {layout:?}, seed {seed}");
        let written = scene.ios();
        if random.chance(0.5) {
            cache.close().map_err(|error| error.to_string())?;
        }
        drop(cache);
        scene.jump(days[random.below(4) as usize]);
        let cache = scene.open(&setup);
        scene.pass(&cache, 10.0);
        if scene.ios() > written {
            let stats = cache.stats().expect("counts").dirty_age;
            return Err(format!("{what}: pages 210 to 250 s old of 600 are written below at a start: {stats:?}"));
        }
        // And once more, as much later.
        scene.pass(&cache, 190.0);
        drop(cache);
        let cache = scene.open(&setup);
        scene.pass(&cache, 400.0);
        scene.check(600.0 + GRACE).map_err(|why| format!("{what}: {why}"))?;
        if scene.differing() > 0 {
            return Err(format!("{what}: {} pages are not below", scene.differing()));
        }
    }
    Ok(())
}

#[test]
fn ages_outlive_a_kill_and_a_restart_whatever_the_clock_shows() {
    for layout in LAYOUTS {
        restarted(layout).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// After a kill or a loss of power, pages over the bound are below as soon as they can be written.
fn over_age(layout: Layout) -> Result<(), String> {
    for seed in 50..56 {
        let policy = ["lru", "face-gsc", "h-arc"][seed as usize % 3];
        let info = catalogue::info(policy).expect("a policy");
        let setup = Setup::new(info, layout, 3600, seed);
        let mut scene = Scene::new(&setup);
        let cache = scene.open(&setup);
        let mut random = Random::new(seed);
        for _ in 0..200 {
            scene.write(&cache, random.below(setup.pages));
            scene.pass(&cache, 0.1);
        }
        cache.flush().map_err(|error| error.to_string())?;
        scene.pass(&cache, 60.0);
        drop(cache);
        if seed % 2 == 0 {
            scene.crash(seed);
        }
        // The cache that goes on has another bound, so that all pages are over it.
        let differing = scene.differing();
        let setup = Setup { bound: 10, ..setup };
        let cache = scene.open(&setup);
        let began = scene.now();
        scene.pass_until(&cache, 3600.0, |scene| scene.differing() == 0);
        let took = scene.now() - began;
        let rate = cache.stats().expect("counts").dirty_age.expect("a bound").rate.unwrap_or(1).max(1);
        let may_take = differing as f64 / rate as f64 + GRACE;
        println!("{policy}, {layout:?}, seed {seed}: {differing} pages in {took:.2} s at {rate} pages/s");
        if took > may_take || differing == 0 {
            return Err(format!("{policy}, {layout:?}, seed {seed}: {differing} pages took {took} s, not {may_take}"));
        }
    }
    Ok(())
}

#[test]
fn after_a_kill_what_is_over_age_is_below_as_soon_as_it_can_be_written() {
    for layout in LAYOUTS {
        over_age(layout).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// A bound is set, changed and removed in use, and one is set where the age of dirty pages is unknown.
#[test]
fn a_bound_may_be_set_in_use() {
    for layout in LAYOUTS {
        for (at, info) in families().into_iter().enumerate() {
            let setup = Setup { bound: 0, ..Setup::new(info, layout, 60, 60 + at as u64) };
            let mut scene = Scene::new(&setup);
            let cache = scene.open(&setup);
            for page in 0..50 {
                scene.write(&cache, page);
            }
            let differing = scene.differing();
            scene.pass(&cache, 1000.0);
            assert_eq!(scene.differing(), differing, "{}: there is no bound", info.name);
            assert_eq!(cache.stats().expect("counts").dirty_age, None);
            scene.bound(&cache, 60);
            let began = scene.now();
            scene.pass_until(&cache, 60.0, |scene| scene.differing() == 0);
            assert!(scene.now() - began < 5.0, "{}, {layout:?}: what nobody knows the age of is written", info.name);
            scene.write(&cache, 7);
            scene.pass(&cache, 10.0);
            assert_eq!(scene.differing(), 1, "{}", info.name);
            scene.bound(&cache, 15);
            scene.pass(&cache, 6.0);
            assert_eq!(scene.differing(), 0, "{}", info.name);
            scene.write(&cache, 8);
            scene.bound(&cache, 0);
            scene.pass(&cache, 1000.0);
            assert_eq!(scene.differing(), 1, "{}", info.name);
        }
    }
}

/// Dirty neighbours go together: the writes that a bound costs are as large as the runs are.
#[test]
fn what_is_old_is_written_in_runs_of_neighbours() {
    for layout in LAYOUTS {
        let setup = Setup { pages: 2000, ..Setup::large(layout, 60, 70) };
        let mut scene = Scene::new(&setup);
        let cache = scene.open(&setup);
        // The rate of writes is measured with other pages.
        for page in 0..64 {
            scene.write(&cache, 1000 + 8 * page);
        }
        scene.pass(&cache, 100.0);
        let before = scene.ios();
        // Neighbours become dirty one long after the other.
        for page in (0..512).map(|n| n * 37 % 512) {
            scene.write(&cache, page);
            scene.pass(&cache, 0.01);
        }
        scene.pass(&cache, 100.0);
        let writes = scene.ios() - before;
        println!("{layout:?}: 512 pages in {writes} writes");
        assert_eq!(scene.differing(), 0);
        assert!(writes <= 512 / 16, "{layout:?}: {writes} writes");
    }
}

/// Pages whose write-back fails stay dirty, are reported, and are below when it succeeds again.
#[test]
fn a_bound_that_is_missed_is_told() {
    for layout in LAYOUTS {
        let setup = Setup::new(catalogue::info("lru").expect("a policy"), layout, 20, 80);
        let mut scene = Scene::new(&setup);
        let cache = scene.open(&setup);
        for page in 0..30 {
            scene.write(&cache, page);
        }
        scene.fail(true);
        scene.pass(&cache, 50.0);
        let told = cache.stats().expect("counts").dirty_age.expect("a bound");
        assert!(told.oldest.is_some_and(|oldest| oldest.as_secs() >= 49) && told.late == 0, "{told:?}");
        scene.fail(false);
        scene.pass(&cache, 5.0);
        let told = cache.stats().expect("counts").dirty_age.expect("a bound");
        assert_eq!((scene.differing(), told.oldest, told.late), (0, None, 30), "{told:?}");
        assert!((29..=36).contains(&told.late_by.as_secs()), "{told:?}");
    }
}

/// A cache without maintenance threads does due work when a page is written, even one that is dirty already.
#[test]
fn a_cache_without_threads_looks_at_ages_when_something_is_written() {
    for layout in LAYOUTS {
        let setup = Setup::new(catalogue::info("lru").expect("a policy"), layout, 60, 85);
        let mut scene = Scene::new(&setup);
        let cache = scene.open_kept_by(&setup, Maintenance::Requests);
        for page in 0..20 {
            scene.write(&cache, page);
        }
        scene.idle(50.0);
        assert_eq!((scene.differing(), scene.ios()), (20, 0), "{layout:?}: nobody asks");
        scene.write(&cache, 3);
        assert_eq!(scene.differing(), 1, "{layout:?}: what was written last");
        scene.check(60.0 + GRACE).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// With maintenance threads and the system's clock.
#[test]
fn a_cache_in_real_time_writes_what_is_old_though_nothing_is_asked_for() {
    let setup = Setup::new(catalogue::info("lru").expect("a policy"), Layout::Log, 1, 90);
    let mut scene = Scene::new(&setup);
    let cache: BlockCache = scene.open_with_threads(&setup);
    scene.write(&cache, 3);
    let begun = std::time::Instant::now();
    while scene.differing() > 0 && begun.elapsed().as_secs() < 120 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(scene.differing(), 0, "nothing was written in two minutes");
    cache.close().expect("a cache in order");
}

#[test]
fn every_mutant_that_breaks_the_bound_is_found_out() {
    for layout in LAYOUTS {
        for mutant in Mutant::OF_AGES {
            mutant::activate(Some(mutant));
            let tests = [idle, loaded, overloaded, restarted, over_age];
            let found = tests.iter().find_map(|test| {
                catch_unwind(AssertUnwindSafe(|| test(layout))).unwrap_or_else(|_| Err("a panic".to_owned())).err()
            });
            mutant::activate(None);
            println!("{layout:?}: {mutant:?}: {found:?}");
            assert!(found.is_some(), "{layout:?}: {mutant:?} is not found out");
        }
    }
}

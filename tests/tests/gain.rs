//! Advice that is followed helps, and by no more than the report said: each job runs as it is and as it is after doing what the
//! report advises. `cargo xtask lab --mend` runs more of them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use gpustall_tests::lab::mend;

/// Length of each run: enough for some dozens of batches.
const SECONDS: f64 = 4.0;

fn helps_within_the_bound(name: &str) {
    let pair = mend::all().into_iter().find(|pair| pair.name == name).unwrap();
    if let Some(why) = (pair.missing)() {
        panic!("{name} cannot run here: {why}");
    }
    let mended = mend::run(&pair, SECONDS, None).unwrap();
    println!("{}\n{mended}", mend::head());
    assert!(mended.failures.is_empty(), "{}\n{mended}", mend::head());
}

macro_rules! help_within_the_bound {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                helps_within_the_bound($name);
            }
        )*
    };
}

help_within_the_bound! {
    lifting_the_limit_of_a_disk: "disk-limit",
    more_workers_where_a_cpu_is_free: "one-worker",
    workers_where_there_were_none: "no-workers",
    fewer_checkpoints: "fewer-checkpoints",
    workers_that_stay: "persistent-workers",
    moving_a_competitor_elsewhere: "competitor",
}

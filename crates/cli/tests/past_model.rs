//! Any series of file work, snapshots, resets, forks, merges, stops and restarts leaves exactly the files that a plain
//! model of them has.

mod model;
mod violence;

use model::family::Family;
use violence::{Dice, in_threads};
use workroom_testkit::{Server, User};

/// How many steps there are between two comparisons.
const BETWEEN: u64 = 8;

#[test]
fn a_past_is_what_a_plain_model_says() {
    live(&User::running_the_tests(), 150);
}

/// Directories of frozen layers are not renamed here, but copied.
#[test]
fn a_past_of_an_ordinary_user_is_what_a_plain_model_says() {
    live(&User::ordinary(), 80);
}

#[test]
#[ignore = "long"]
fn soak_a_past_is_what_a_plain_model_says() {
    live(&User::running_the_tests(), 10_000);
}

#[test]
#[ignore = "long"]
fn soak_a_past_of_an_ordinary_user_is_what_a_plain_model_says() {
    live(&User::ordinary(), 3000);
}

fn live(user: &User, steps: u64) {
    let dice = Dice::new();
    let mut server = Server::of(user);
    in_threads(async {
        let mut family = Family::new(&mut server, dice).await;
        family.seed(10).await;
        for step in 1..=steps {
            family.step().await;
            if step % BETWEEN == 0 {
                family.compare().await;
            }
        }
        println!("{steps} steps: {:#?}", family.finish().await);
    });
}

//! What proves a store: one list of checks for every one of them, a port that fails when it is told to, and stores in
//! this process that speak the protocols. Built only with the feature `testing`; it panics where something is wrong, as
//! tests do.

pub mod conformance;
pub mod fake;
pub mod faulty;
pub mod harm;

pub use conformance::{Bench, CHECKS, Check, Lack, check_all};
pub use faulty::Faulty;
pub use harm::{Harm, Phase, Times};

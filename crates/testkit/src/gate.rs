//! What stands between a caller and everything it calls: a caller can be stopped, continued and killed here, between
//! any two of its calls and between a call and its answer. What is called does not know.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The gate of one caller. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Wakes in the order in which they came, unlike tokio's watch, so that a seed decides who goes on first.
    turned: Notify,
    observer: Option<Observer>,
    doom: Option<Doom>,
}

/// Says of every passing whether the caller dies of it.
pub type Doom = Box<dyn Fn(&str, Side) -> bool + Send + Sync>;

/// Sees every passing, and whether the caller dies of it.
pub type Observer = Box<dyn Fn(&str, Side, bool) + Send + Sync>;

#[derive(Debug, Default)]
struct State {
    stance: Stance,
    passed: u64,
    kill_at: Option<u64>,
    stop_at: Option<u64>,
    ambush: Option<Ambush>,
    noted: Option<Vec<(String, Side)>>,
}

/// Before a call, or between what it did and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Nothing has been done yet.
    Before,
    /// It is done, and the caller does not know.
    After,
}

/// What befalls a caller at the next call of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambush {
    /// The name of the call.
    pub call: String,
    /// At which side of it.
    pub side: Side,
    /// It is stopped there, and not killed.
    pub is_stop: bool,
}

/// What a caller is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stance {
    #[default]
    Open,
    Stopped,
    Dead,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("passed", &self.passed())
            .field("stance", &self.stance())
            .finish()
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::open()
    }
}

impl Gate {
    /// A gate that lets everything pass.
    pub fn open() -> Self {
        Self::new(None, None)
    }

    /// The same under somebody's eyes.
    pub fn observed(observer: Observer) -> Self {
        Self::new(Some(observer), None)
    }

    /// The same, and its caller dies where somebody says so.
    pub fn doomed(observer: Observer, doom: Doom) -> Self {
        Self::new(Some(observer), Some(doom))
    }

    fn new(observer: Option<Observer>, doom: Option<Doom>) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::default(),
            turned: Notify::new(),
            observer,
            doom,
        }))
    }

    /// One more passing at one side of a call of this name. Never ends for a caller that is dead.
    pub async fn pass(&self, call: &str, side: Side) {
        let was_dead = self.is_dead();
        let doom = self.0.doom.as_ref().filter(|_| !was_dead);
        let is_doomed = doom.is_some_and(|doom| doom(call, side));
        {
            let mut state = self.state();
            state.passed += 1;
            if let Some(noted) = &mut state.noted {
                noted.push((call.to_owned(), side));
            }
            let is_here = |ambush: &mut Ambush| ambush.call == call && ambush.side == side;
            let ambush = state.ambush.take_if(is_here);
            let is_killed = is_doomed
                || ambush.as_ref().is_some_and(|ambush| !ambush.is_stop)
                || state.kill_at == Some(state.passed);
            let is_stopped = ambush.is_some() || state.stop_at == Some(state.passed);
            drop(state);
            if is_killed {
                self.kill();
            } else if is_stopped {
                self.stop();
            }
        }
        if let Some(observer) = self.0.observer.as_ref().filter(|_| !was_dead) {
            observer(call, side, self.is_dead());
        }
        self.while_open().await;
    }

    /// Waits while the caller is stopped, without counting; never ends for one that is dead.
    pub async fn while_open(&self) {
        self.until(|stance| stance == Stance::Open).await;
    }

    /// How many passings there were: two for each call, and one for a call that was never answered.
    pub fn passed(&self) -> u64 {
        self.state().passed
    }

    /// Notes every passing from now on.
    pub fn note(&self) {
        self.state().noted = Some(Vec::new());
    }

    /// What was noted: the calls in their order, and at which side of them it was.
    pub fn noted(&self) -> Vec<(String, Side)> {
        self.state().noted.clone().unwrap_or_default()
    }

    /// Kills the caller at its nth passing from now on.
    pub fn kill_at(&self, nth: u64) {
        let mut state = self.state();
        state.kill_at = Some(state.passed + nth.max(1));
    }

    /// Stops the caller at its nth passing from now on.
    pub fn stop_at(&self, nth: u64) {
        let mut state = self.state();
        state.stop_at = Some(state.passed + nth.max(1));
    }

    /// Lies in wait for the next call of a name.
    pub fn lie_in_wait(&self, ambush: Ambush) {
        self.state().ambush = Some(ambush);
    }

    /// Forgets what lies in wait; whether anything did.
    pub fn call_off(&self) -> bool {
        self.state().ambush.take().is_some()
    }

    /// Kills the caller now: none of its calls ever goes on.
    pub fn kill(&self) {
        self.turn(&[Stance::Open, Stance::Stopped], Stance::Dead);
    }

    /// Stops the caller, as a process is stopped by a signal.
    pub fn stop(&self) {
        self.turn(&[Stance::Open], Stance::Stopped);
    }

    /// Lets a stopped caller go on.
    pub fn go_on(&self) {
        self.turn(&[Stance::Stopped], Stance::Open);
    }

    /// Whether both hold the same caller.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the caller is dead.
    pub fn is_dead(&self) -> bool {
        self.stance() == Stance::Dead
    }

    /// Whether the caller is stopped.
    pub fn is_stopped(&self) -> bool {
        self.stance() == Stance::Stopped
    }

    /// Waits until the caller is dead.
    pub async fn dead(&self) {
        self.until(|stance| stance == Stance::Dead).await;
    }

    /// Waits until the caller is stopped or dead.
    pub async fn held(&self) {
        self.until(|stance| stance != Stance::Open).await;
    }

    fn turn(&self, from: &[Stance], to: Stance) {
        let mut state = self.state();
        if from.contains(&state.stance) {
            state.stance = to;
            drop(state);
            self.0.turned.notify_waiters();
        }
    }

    fn stance(&self) -> Stance {
        self.state().stance
    }

    async fn until(&self, is_so: impl Fn(Stance) -> bool) {
        loop {
            let turned = self.0.turned.notified();
            if is_so(self.stance()) {
                return;
            }
            turned.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_caller_dies_at_the_passing_that_was_told_and_never_calls_again() {
        let gate = Gate::open();
        gate.pass("Get", Side::Before).await;
        gate.kill_at(2);
        gate.pass("Get", Side::After).await;
        assert!(!gate.is_dead());
        assert!(timeout(SOON, gate.pass("Get", Side::Before)).await.is_err());
        assert!(gate.is_dead());
        gate.go_on();
        assert!(timeout(SOON, gate.while_open()).await.is_err());
        timeout(SOON, gate.dead()).await.expect("it is dead");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_caller_goes_on_where_it_was() {
        let gate = Gate::open();
        gate.stop_at(1);
        let other = gate.clone();
        let caller = tokio::spawn(async move { other.pass("Get", Side::Before).await });
        tokio::time::sleep(SOON).await;
        assert!(gate.is_stopped() && !caller.is_finished());
        gate.go_on();
        timeout(SOON, caller).await.expect("in time").expect("no panic");
    }
    #[tokio::test(start_paused = true)]
    async fn a_caller_dies_where_it_is_doomed_to_and_goes_no_further() {
        let doom = |call: &str, side: Side| call == "Put" && side == Side::Before;
        let gate = Gate::doomed(Box::new(|_, _, _| {}), Box::new(doom));
        gate.pass("Get", Side::Before).await;
        assert!(!gate.is_dead());
        let put = gate.pass("Put", Side::Before);
        assert!(timeout(SOON, put).await.is_err() && gate.is_dead());
    }

    #[tokio::test(start_paused = true)]
    async fn an_ambush_waits_for_its_call_and_its_side() {
        let (sender, seen) = std::sync::mpsc::channel();
        let gate = Gate::observed(Box::new(move |call, side, dies| {
            // Whoever listens hears it as long as the test runs.
            let _ = sender.send((call.to_owned(), side, dies));
        }));
        gate.lie_in_wait(Ambush {
            call: "Put".to_owned(),
            side: Side::After,
            is_stop: false,
        });
        gate.pass("Get", Side::After).await;
        gate.pass("Put", Side::Before).await;
        assert!(!gate.is_dead());
        assert!(timeout(SOON, gate.pass("Put", Side::After)).await.is_err());
        let dead: Vec<_> = seen.try_iter().filter(|(_, _, dies)| *dies).collect();
        assert_eq!(dead, [("Put".to_owned(), Side::After, true)]);
    }
}

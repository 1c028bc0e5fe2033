//! Equal processes behind one address: their order of use, and faults of them.

use std::{
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::process::Process;

/// Time until a load balancer has noticed a stop.
const NOTICED: Duration = Duration::from_millis(500);
/// Time until a killed process is restarted.
const DOWN: Duration = Duration::from_millis(300);
/// Grace period for termination in `deploy/`.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

struct Member {
    address: SocketAddr,
    process: Mutex<Option<Process>>,
    out: AtomicBool,
}

/// Some equal processes.
#[derive(Default)]
pub(crate) struct Fleet {
    members: Vec<Member>,
    turn: AtomicUsize,
}

impl Fleet {
    /// These processes, each listening on its address.
    pub(crate) fn new(members: Vec<(SocketAddr, Option<Process>)>) -> Self {
        let member = |(address, process)| Member {
            address,
            process: Mutex::new(process),
            out: AtomicBool::new(false),
        };
        Self {
            members: members.into_iter().map(member).collect(),
            turn: AtomicUsize::new(0),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Adds the process to a member that only had an address.
    pub(crate) fn put(&self, index: usize, process: Process) {
        *self.members[index].process.lock() = Some(process);
    }

    /// The members in the order in which a load balancer would try them.
    pub(crate) fn order(&self) -> Vec<SocketAddr> {
        self.order_from(self.turn.fetch_add(1, Ordering::Relaxed))
    }

    /// The same, beginning with this one unless it is out.
    pub(crate) fn order_from(&self, first: usize) -> Vec<SocketAddr> {
        let count = self.members.len();
        let all = || (0..count).map(|step| &self.members[(first + step) % count]);
        let well: Vec<_> = all()
            .filter(|member| !member.out.load(Ordering::SeqCst))
            .map(|member| member.address)
            .collect();
        if well.is_empty() {
            all().map(|member| member.address).collect()
        } else {
            well
        }
    }

    pub(crate) fn stop(&self, index: usize) {
        self.with(index, |process| {
            let _ = process.pause();
        });
    }

    /// After a stop: takes the process out of use once that was noticed, and continues it after
    /// `time`.
    pub(crate) async fn take_out_and_continue(&self, index: usize, time: Duration) {
        tokio::time::sleep(NOTICED).await;
        self.members[index].out.store(true, Ordering::SeqCst);
        tokio::time::sleep(time.saturating_sub(NOTICED)).await;
        self.with(index, |process| {
            let _ = process.resume();
        });
        tokio::time::sleep(NOTICED).await;
        self.members[index].out.store(false, Ordering::SeqCst);
    }

    /// Restarts ended processes, as a Deployment does; for ever. A controller that has lost its
    /// lease ends.
    pub(crate) async fn supervise(&self) {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for (index, member) in self.members.iter().enumerate() {
                // A killed member is already out, and is restarted by the fault that killed it.
                let ended = member
                    .process
                    .lock()
                    .as_mut()
                    .is_some_and(Process::has_ended);
                if ended && !member.out.load(Ordering::SeqCst) {
                    self.restart(index).await;
                }
            }
        }
    }

    /// The first member whose log fulfils a condition.
    pub(crate) fn position(&self, is: impl Fn(&str) -> bool) -> Option<usize> {
        let log = |member: &Member| {
            member
                .process
                .lock()
                .as_ref()
                .map(Process::log)
                .unwrap_or_default()
        };
        self.members.iter().position(|member| is(&log(member)))
    }

    pub(crate) fn kill(&self, index: usize) {
        self.with(index, |process| {
            let id = process
                .id()
                .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
            let _ = id.map(|id| kill_process(id, Signal::KILL));
        });
    }

    /// Restarts a killed process; it is used again once it listens.
    pub(crate) async fn restart(&self, index: usize) {
        self.members[index].out.store(true, Ordering::SeqCst);
        tokio::time::sleep(DOWN).await;
        let taken = self.members[index].process.lock().take();
        self.start(index, taken).await;
    }

    /// Replaces the program of each member, one after another, as a rollout does.
    pub(crate) async fn roll(&self, program: &Path) {
        for (index, member) in self.members.iter().enumerate() {
            member.out.store(true, Ordering::SeqCst);
            tokio::time::sleep(NOTICED).await;
            let mut taken = member.process.lock().take();
            if let Some(process) = &mut taken {
                let _ = process.stop(ENDS_WITHIN).await;
                process.set_program(program);
            }
            self.start(index, taken).await;
        }
    }

    async fn start(&self, index: usize, process: Option<Process>) {
        let member = &self.members[index];
        if let Some(mut process) = process {
            let _ = process.restart().await;
            *member.process.lock() = Some(process);
        }
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if tokio::net::TcpStream::connect(member.address).await.is_ok() {
                break;
            }
        }
        tokio::time::sleep(NOTICED).await;
        member.out.store(false, Ordering::SeqCst);
    }

    /// Takes the processes out, for the caller that provided them.
    pub(crate) fn give_back(&self) -> Vec<Process> {
        self.members
            .iter()
            .filter_map(|member| member.process.lock().take())
            .collect()
    }

    pub(crate) fn logs(&self, lines: usize) -> String {
        let log = |member: &Member| {
            member
                .process
                .lock()
                .as_ref()
                .map(|process| format!("--- {} ---\n{}\n", process.name(), process.tail(lines)))
        };
        self.members.iter().filter_map(log).collect()
    }

    fn with(&self, index: usize, act: impl FnOnce(&mut Process)) {
        if let Some(member) = self.members.get(index) {
            member.process.lock().as_mut().map(act);
        }
    }
}

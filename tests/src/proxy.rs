//! A TCP proxy on a loopback port: spreads connections over upstreams, and can delay, refuse, stall
//! or cut them.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    None,
    /// New connections are closed at once, and open ones are cut.
    Refuse,
    /// Bytes are accepted and held until the fault changes.
    Stall,
    /// Every piece of data is passed on after this delay.
    Delay(Duration),
    /// Each new connection is cut after this many bytes from client to server.
    CutAfter(u64),
}

/// A running proxy; ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    /// Number of bytes that were passed on, in both directions.
    total: Arc<AtomicU64>,
    end: CancellationToken,
}

impl Proxy {
    /// Starts a proxy in front of these upstreams, used in turn.
    pub async fn start(upstreams: Vec<SocketAddr>) -> anyhow::Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST, upstreams).await
    }

    /// Like `start`, on another address than loopback.
    pub(crate) async fn start_at(
        address: Ipv4Addr,
        upstreams: Vec<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let proxy = Self {
            address: listener.local_addr()?,
            fault: watch::channel(Fault::None).0,
            total: Arc::default(),
            end: CancellationToken::new(),
        };
        let total = Arc::clone(&proxy.total);
        let accepting = accept(listener, upstreams, proxy.fault.subscribe(), total);
        tokio::spawn(proxy.end.clone().run_until_cancelled_owned(accepting));
        Ok(proxy)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of bytes that were passed on so far, in both directions.
    pub fn passed(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Sets the fault of connections; [`Fault::Refuse`] also cuts the open ones.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.fault.send_replace(Fault::Refuse);
        self.end.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    upstreams: Vec<SocketAddr>,
    fault: watch::Receiver<Fault>,
    total: Arc<AtomicU64>,
) {
    let turn = AtomicUsize::new(0);
    while let Ok((client, _)) = listener.accept().await {
        if *fault.borrow() == Fault::Refuse || upstreams.is_empty() {
            continue;
        }
        tokio::spawn(connect(
            client,
            upstreams.clone(),
            turn.fetch_add(1, Ordering::Relaxed),
            fault.clone(),
            Arc::clone(&total),
        ));
    }
}

/// Tries the upstreams from `turn` on, like the endpoints of a Service.
async fn connect(
    client: TcpStream,
    targets: Vec<SocketAddr>,
    turn: usize,
    fault: watch::Receiver<Fault>,
    total: Arc<AtomicU64>,
) {
    let mut cut = fault.clone();
    for step in 0..targets.len() {
        if let Ok(server) = TcpStream::connect(targets[(turn + step) % targets.len()]).await {
            let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            let limit = match *fault.borrow() {
                Fault::CutAfter(bytes) => bytes,
                _ => u64::MAX,
            };
            tokio::select! {
                _ = async { tokio::try_join!(
                    pump(from_client, to_server, limit, fault.clone(), &total),
                    pump(from_server, to_client, u64::MAX, fault.clone(), &total),
                ) } => {}
                _ = cut.wait_for(|fault| *fault == Fault::Refuse) => {}
            }
            return;
        }
    }
}

/// Passes on one direction until it ends; on an error the whole connection must be cut.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    limit: u64,
    mut fault: watch::Receiver<Fault>,
    total: &AtomicU64,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut passed = 0;
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        let now = *fault.borrow();
        match now {
            Fault::Delay(time) => tokio::time::sleep(time).await,
            Fault::Stall => {
                let _ = fault.wait_for(|fault| *fault != Fault::Stall).await;
            }
            _ => {}
        }
        passed += read as u64;
        if passed > limit {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        to.write_all(&buffer[..read]).await?;
        total.fetch_add(read as u64, Ordering::Relaxed);
    }
}

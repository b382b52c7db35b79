//! The actors of this process: at most one for each device and server type, stopped when its last client is gone.

use crate::actor::{DeviceActor, ShellOptions};
use crate::ending::Ending;
use crate::engine::EngineOptions;
use crate::error::{ComputeError, ServerError};
use crate::id::{ActorId, DeviceId, ServiceId, StreamId};
use crate::mailbox::{LAUNCHES_IN_FLIGHT, Mailbox, mailbox};
use crate::message::{Body, Envelope, Event};
use crate::meter::Meter;
use crate::port::Device;
use crate::properties::{DeviceProperties, TargetProperties};
use crate::server::Server;
use dashmap::DashMap;
use std::any::TypeId;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How an actor is set up.
#[derive(Debug, Clone)]
pub struct ActorOptions {
    /// Launches that may be in flight before senders are held back.
    pub launches_in_flight: usize,
    /// How long a waiter polls before it sleeps.
    pub spin: Duration,
    /// Bytes of device memory that the pools may reserve; `None` is what the device has.
    pub memory_limit: Option<u64>,
    /// New reservations read as zero.
    pub zero_memory: bool,
    /// Where records go.
    pub records: Option<PathBuf>,
}

impl Default for ActorOptions {
    fn default() -> Self {
        Self {
            launches_in_flight: LAUNCHES_IN_FLIGHT,
            spin: default_spin(),
            memory_limit: None,
            zero_memory: false,
            records: None,
        }
    }
}

/// How long waiters poll where nobody says otherwise: long enough for a launch and a read (20 µs on an H200), and
/// hardly at all where the polling thread would take a core from a software device.
pub fn default_spin() -> Duration {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores > 2 { Duration::from_micros(50) } else { Duration::from_micros(5) }
}

/// A running actor, as its clients share it. Dropping the last reference lets sent work finish and stops it.
#[derive(Debug)]
pub struct ActorRef {
    mailbox: Mailbox,
    name: &'static str,
    properties: Arc<DeviceProperties>,
    target: Arc<TargetProperties>,
    spin: Duration,
    ending: Arc<Ending>,
    meter: Meter,
    /// Its sender is dropped when the device is destroyed.
    running: watch::Receiver<()>,
}

impl ActorRef {
    /// How to reach it.
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// What it is.
    pub fn service(&self) -> ServiceId {
        self.mailbox.service()
    }

    /// The runtime's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its device.
    pub fn properties(&self) -> &Arc<DeviceProperties> {
        &self.properties
    }

    /// What kernels may rely on.
    pub fn target(&self) -> &Arc<TargetProperties> {
        &self.target
    }

    /// How long a blocking caller polls before it parks.
    pub fn spin(&self) -> Duration {
        self.spin
    }

    /// Where the seconds from the call of a read to its bytes are recorded.
    pub fn read_latency(&self) -> &metrics::Histogram {
        self.meter.read()
    }

    /// Lets sent work finish and stops the actor; resolves when its device is destroyed.
    ///
    /// # Cancellation
    /// A dropped future leaves the actor stopping.
    pub async fn stop(&self) {
        self.ending.begin();
        self.mailbox.send(StreamId::DEFAULT, Body::Stop);
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
    }

    /// Whether it takes work: it runs, and its device is there.
    fn is_good(&self) -> bool {
        !self.ending.has_begun() && !self.mailbox.is_closed()
    }
}

impl Drop for ActorRef {
    fn drop(&mut self) {
        self.ending.begin();
        self.mailbox.send(StreamId::DEFAULT, Body::Stop);
    }
}

/// A running actor, for others who do not keep it running.
#[derive(Debug, Clone)]
pub struct Peer {
    actor: ActorId,
    service: ServiceId,
    properties: Arc<DeviceProperties>,
    ending: watch::Receiver<bool>,
}

impl Peer {
    /// Which run of an actor it is.
    pub fn actor(&self) -> ActorId {
        self.actor
    }

    /// What it is.
    pub fn service(&self) -> ServiceId {
        self.service
    }

    /// Its device.
    pub fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    /// Whether it takes no more work: its device is lost, or it was told to stop.
    pub fn has_ended(&self) -> bool {
        *self.ending.borrow()
    }

    /// Resolves when it takes no more work. Needs no runtime.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ending = self.ending.clone();
        async move {
            // An error says that the actor is gone altogether.
            let _gone = ending.wait_for(|begun| *begun).await;
        }
    }
}

/// The actor that runs as this service, if one takes work.
pub fn peer(service: ServiceId) -> Option<Peer> {
    let place = ACTORS.get(&service)?.value().clone();
    let running = place.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    let actor = running.filter(|actor| actor.is_good())?;
    let (properties, ending) = (actor.properties.clone(), actor.ending.watch());
    Some(Peer { actor: actor.mailbox.actor(), service, properties, ending })
}

/// Whether an actor takes work under this id, as whatever service.
pub fn runs(device: DeviceId) -> bool {
    let services: Vec<ServiceId> = ACTORS.iter().map(|entry| *entry.key()).filter(|s| s.device == device).collect();
    services.into_iter().any(|service| peer(service).is_some())
}

/// One lock for each service: opening a device keeps only those waiting who want that device.
static ACTORS: LazyLock<DashMap<ServiceId, Arc<Mutex<Weak<ActorRef>>>>> = LazyLock::new(DashMap::new);

/// All actors that have not ended, for the end of the process: those too whose clients are gone.
static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

/// How to stop an actor, and to learn that it is gone.
struct Running {
    mailbox: Mailbox,
    ending: Arc<Ending>,
    /// Its sender is dropped when the device is destroyed.
    ended: watch::Receiver<()>,
}

/// Stops every actor of the process and waits for them, for `patience` at most.
///
/// A driver tears itself down when the process exits, and an actor that still uses it then crashes the process. It is
/// called at that time, so it uses nothing that belongs to a thread.
pub fn stop_all(patience: Duration) {
    let running = std::mem::take(&mut *RUNNING.lock().unwrap_or_else(PoisonError::into_inner));
    for Running { mailbox, ending, .. } in &running {
        ending.begin();
        let stop = Envelope { lease: None, stream: StreamId::DEFAULT, body: Body::Stop };
        mailbox.post(Event::Client(stop));
    }
    let started = Instant::now();
    while started.elapsed() < patience && running.iter().any(|actor| actor.ended.has_changed().is_ok()) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `start` with the place of a service locked, where no good actor is in it.
fn in_place(
    service: ServiceId,
    running: impl FnOnce(Arc<ActorRef>) -> Result<Arc<ActorRef>, ComputeError>,
    start: impl FnOnce() -> Result<Arc<ActorRef>, ComputeError>,
) -> Result<Arc<ActorRef>, ComputeError> {
    let place = ACTORS.entry(service).or_default().clone();
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    match place.upgrade().filter(|actor| actor.is_good()) {
        Some(actor) => running(actor),
        None => {
            let actor = start()?;
            *place = Arc::downgrade(&actor);
            Ok(actor)
        }
    }
}

fn service_of<S: Server>(device: DeviceId) -> ServiceId {
    ServiceId { device, service: TypeId::of::<S>() }
}

/// Starts an actor.
///
/// # Errors
/// [`ComputeError::AlreadyRunning`] where one runs on this device for this type of server.
pub fn start<S: Server>(device: DeviceId, server: S, options: &ActorOptions) -> Result<Arc<ActorRef>, ComputeError> {
    let service = service_of::<S>(device);
    let taken = |_| Err(ComputeError::AlreadyRunning(device));
    in_place(service, taken, || spawn(service, server.into_device(), options))
}

/// The actor of this id, started with what `open` gives if none runs. Simultaneous calls open once.
///
/// # Errors
/// What `open` gives, or that no thread could be started.
pub fn load<S: Server>(
    device: DeviceId,
    options: &ActorOptions,
    open: impl FnOnce() -> Result<S, ComputeError>,
) -> Result<Arc<ActorRef>, ComputeError> {
    let service = service_of::<S>(device);
    in_place(service, Ok, || spawn(service, open()?.into_device(), options))
}

/// Puts a device on a thread of its own.
fn spawn<D: Device>(service: ServiceId, device: D, options: &ActorOptions) -> Result<Arc<ActorRef>, ComputeError> {
    let (mailbox, inbox) = mailbox(service, options.launches_in_flight);
    let properties = Arc::new(device.properties());
    let target = Arc::new(device.target());
    let name = device.name();
    let ending = Arc::new(Ending::default());
    let total = properties.memory.total;
    let engine = EngineOptions {
        actor: mailbox.actor(),
        properties: (*properties).clone(),
        limits: device.limits(),
        memory_budget: options.memory_limit.map_or(total, |limit| limit.min(total)),
        zero_memory: options.zero_memory,
    };
    let meter = Meter::new(name, service.device);
    let shell = ShellOptions {
        spin: options.spin,
        records: options.records.clone(),
        ending: ending.clone(),
        meter: meter.clone(),
    };
    let (stopped, running) = watch::channel(());
    let failed = |error: std::io::Error| ServerError::Generic { reason: format!("no thread for an actor: {error}") };
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(failed)?;
    let (thread_target, thread_ending) = (target.clone(), ending.clone());
    let body = move || {
        let run = || runtime.block_on(DeviceActor::new(device, inbox, thread_target, engine, shell).run());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            // The mailbox is closed by now, and every reply dropped.
            tracing::error!(reason = crate::actor::panic_text(&*panic), "an actor panicked");
        }
        thread_ending.begin();
        drop(stopped);
    };
    {
        let mut all = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|actor| actor.ended.has_changed().is_ok());
        all.push(Running { mailbox: mailbox.clone(), ending: ending.clone(), ended: running.clone() });
    }
    std::thread::Builder::new().name(format!("vkactor {name}")).spawn(body).map_err(failed)?;
    Ok(Arc::new(ActorRef { mailbox, name, properties, target, spin: options.spin, ending, meter, running }))
}

//! From a request to the call that answers it. What may take long is done by a worker.

use super::create::{Asked, copies};
use super::session::Session;
use super::{Host, lock, synchronisation};
use crate::cache::Cache;
use crate::workers::{ObjectThreads, Share, Workers};
use commonhold_object::wire::{Header, HelloReply, Reply, Request};
use commonhold_object::{Coherence, Error, ErrorKind, PagerKind, Result};
use commonhold_sys::closing::is_socket;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// So long a request is worked on again where holders stand in its way.
const FOR_HOLDERS: Duration = Duration::from_millis(commonhold_wired::DEADLINE_MS);

impl Host {
    /// Answers a request, now or later. Takes those of the descriptors that it calls for; the others are left to whoever
    /// received them.
    pub fn dispatch(
        self: &Arc<Self>,
        session: &Arc<Session>,
        header: Header,
        request: Request,
        came: &mut Vec<OwnedFd>,
        apart: bool,
    ) {
        match request {
            Request::PagerAnswer { call, result } => {
                return self.pagers.answer(session.id.0, call, result, apart);
            }
            Request::Hello { program } => return self.hello(session, header, program),
            _ => {}
        }
        if !session.is_new(header) {
            return;
        }
        if let Err(error) = session.begin() {
            session.answered(header.number);
            session.reply(header.number, Err(error), &[]);
            return;
        }
        let fds = take_called_for(&request, came);
        if self.is_quick(&request) || self.opens_at_once(session, &request) {
            self.answer(session, header, request, fds, Session::reply);
            return;
        }
        let place = self.place_of(session, &header, &request);
        let (this, share, session) = (self.clone(), session.share.clone(), session.clone());
        let closes = session.closes(&request);
        place.run(share, move || {
            let _acting = session.asker.acts();
            if closes.is_none() {
                session.wait_for_closes();
            }
            if !header.repeated && !matches!(request, Request::Return { .. } | Request::Reattach { .. }) {
                this.all_brought(&session);
            }
            match request {
                Request::Prefetch { object, offset, length } => {
                    this.prefetch(&session, header.number, object, offset, length);
                }
                Request::Place { object } => {
                    let (host, asker) = (this.clone(), session.clone());
                    let where_to = this.place_of(&session, &header, &request);
                    this.when_it_lies_still(&session, where_to, object, move || {
                        let _acting = asker.asker.acts();
                        let request = Request::Place { object };
                        host.answer(&asker, header, request, Vec::new(), Session::reply_in_time);
                    });
                }
                request => this.answer(&session, header, request, fds, Session::reply_in_time),
            }
            drop(closes);
        });
    }

    /// Who answers what takes long: what may wait for a pager that is another process is done by threads that do nothing
    /// else.
    fn place_of(&self, session: &Session, header: &Header, request: &Request) -> Place {
        if let Some(threads) = self.threads_of_pager(session, request) {
            return Place::Pager(threads);
        }
        let cache = match request {
            Request::Return { .. } | Request::Reattach { .. } => {
                return Place::Pool(self.machine.returning.clone());
            }
            Request::Map(_) if header.repeated => return Place::Pool(self.machine.returning.clone()),
            // What waits for other hosts.
            Request::Lock { object, .. } | Request::Notify { object, .. }
                if self.object(*object).is_ok_and(|object| object.record().options.is_shared()) =>
            {
                return Place::Pool(self.machine.locking.clone());
            }
            Request::Prefetch { object, .. } => self.object(*object).ok().and_then(|object| object.cache()),
            Request::Sync { object, .. } | Request::Lock { object, .. } | Request::Unlock { object, .. } => {
                self.object(*object).ok().and_then(|object| object.cache())
            }
            Request::Unmap { address, .. } => {
                let map = session.space.map.read().unwrap_or_else(PoisonError::into_inner);
                map.find(*address).map(|region| region.value.cache.clone())
            }
            _ => None,
        };
        cache.map_or_else(|| Place::Pool(self.machine.workers.clone()), Place::Cache)
    }

    fn hello(&self, session: &Session, header: Header, program: String) {
        *lock(&session.program) = program.chars().take(200).collect();
        let reply = Reply::Hello(HelloReply {
            session: session.id,
            version: env!("CARGO_PKG_VERSION").into(),
            kernel_faults: self.device.is_some(),
        });
        let device: Vec<BorrowedFd<'_>> = self.device.iter().map(AsFd::as_fd).collect();
        session.reply(header.number, Ok(reply), &device);
    }

    fn answer(
        self: &Arc<Self>,
        session: &Arc<Session>,
        header: Header,
        request: Request,
        fds: Vec<OwnedFd>,
        tell: fn(&Session, u64, Result<Reply>, &[BorrowedFd<'_>]),
    ) {
        self.answer_until(session, header, (request, fds), tell, Instant::now() + FOR_HOLDERS);
    }

    /// An open object that stands in the way is revoked, and the request worked on once more: again and again, for a holder may be
    /// told where it lies just before, but not for longer than holders may take.
    fn answer_until(
        self: &Arc<Self>,
        session: &Arc<Session>,
        header: Header,
        (request, fds): (Request, Vec<OwnedFd>),
        tell: fn(&Session, u64, Result<Reply>, &[BorrowedFd<'_>]),
        until: Instant,
    ) {
        let again = self.revoking.again(&request, until);
        let kept = match again.as_ref().map_or(Ok(Vec::new()), |_| copies(&fds)) {
            Ok(kept) => kept,
            Err(error) => return self.tell_answer(session, header, Err(error), &[], tell),
        };
        let (reply, give) = self.try_to_answer(session, header, request, fds);
        let wanted = self.revoking.wanted(&reply);
        match again.filter(|_| !wanted.is_empty()) {
            Some(request) => {
                let (this, asker) = (self.clone(), session.clone());
                let place = self.place_of(session, &header, &request);
                self.put_aside((place, session.share.clone()), wanted, move || {
                    let _acting = asker.asker.acts();
                    this.answer_until(&asker, header, (request, kept), tell, until);
                });
            }
            None => self.tell_answer(session, header, reply, &give, tell),
        }
    }

    fn try_to_answer(
        self: &Arc<Self>,
        session: &Arc<Session>,
        header: Header,
        request: Request,
        fds: Vec<OwnedFd>,
    ) -> (Result<Reply>, Vec<Arc<OwnedFd>>) {
        let mut give = Vec::new();
        let reply = self.begin_much(session, header, &request).and_then(|begun| {
            let reply = self.perform(session, header, request, fds, &mut give);
            begun.iter().for_each(|begun| self.unkeep(begun));
            reply
        });
        (reply, give)
    }

    fn tell_answer(
        self: &Arc<Self>,
        session: &Arc<Session>,
        header: Header,
        reply: Result<Reply>,
        give: &[Arc<OwnedFd>],
        tell: fn(&Session, u64, Result<Reply>, &[BorrowedFd<'_>]),
    ) {
        let reply = reply.map_err(advise);
        let borrowed: Vec<BorrowedFd<'_>> = give.iter().map(|fd| fd.as_fd()).collect();
        session.end();
        if header.number != 0 {
            tell(session, header.number, reply, &borrowed);
        }
        session.answered(header.number);
        self.sweep_if_ended(session);
        self.end_if_it_left(session);
    }

    fn perform(
        self: &Arc<Self>,
        session: &Arc<Session>,
        Header { number, repeated, .. }: Header,
        request: Request,
        fds: Vec<OwnedFd>,
        give: &mut Vec<Arc<OwnedFd>>,
    ) -> Result<Reply> {
        let done = |()| Reply::Done;
        match request {
            Request::Create { name, options, in_directory, nonce } => {
                self.create(session, Asked { name, options, in_directory, nonce }, fds, give)
            }
            Request::Open { name, access } => self.open(session, &name, access, give),
            Request::Close { object } => self.close(session, object).map(done),
            Request::Stat { name } => self.stat(session, &name),
            Request::StatObject { object } => {
                session.access(object)?;
                Ok(self.stat_object(&*self.object(object)?))
            }
            Request::List { directory, after, .. } => self.list(session, &directory, after.as_ref()),
            Request::Resize { name, size_bytes, of } => self.resize(session, &name, of, size_bytes).map(done),
            Request::Remove { name, of } => self.remove(session, &name, of, repeated).map(done),
            Request::Rename { from, to, replace, of } => self
                .rename(session, (&from, &to), commonhold_registry::Renaming { replace, of }, repeated)
                .map(done),
            Request::MakeDirectory { name, mode } => {
                self.make_directory(session, &name, mode, repeated).map(done)
            }
            Request::ResizeOpened { object, size_bytes, sizing } => {
                self.resize_opened(session, object, size_bytes, sizing).map(done)
            }
            Request::Tag { name, of, tagging } => self.tag(session, &name, of, &tagging).map(done),
            Request::TagOpened { object, tagging } => self.tag_opened(session, object, &tagging).map(done),
            Request::SetModified { name, of, modified_ns } => {
                self.set_modified(session, &name, of, modified_ns).map(done)
            }
            Request::SetMode { name, of, mode } => self.set_mode(session, &name, of, mode).map(done),
            Request::SetOwner { name, of, uid, gid } => {
                self.set_owner(session, &name, of, (uid, gid)).map(done)
            }
            Request::Map(map) => {
                let id = map.object;
                let mapped = self.map(session, map, repeated, fds, give);
                if mapped.is_err() && session.bringing.load(std::sync::atomic::Ordering::Acquire) {
                    self.returning.is_unsure_of(id);
                }
                // The last user of the object may have gone meanwhile, also this one.
                self.settle_object(id);
                mapped
            }
            Request::Unmap { address, length } => self.unmap(session, address, length).map(done),
            Request::Sync { object, offset, length, freeze } => {
                self.sync(session, object, offset, length, freeze)
            }
            Request::Lock { object, offset, length } => self.hold(session, object, offset, length),
            Request::Unlock { object, offset, length } => {
                self.let_go(session, object, offset, length).map(done)
            }
            Request::Incore { object, first_page, pages } => self.incore(session, object, first_page, pages),
            Request::Revert { name } => self.revert(session, &name),
            Request::RevertOpened { object } => self.revert_opened(session, object),
            Request::Watch { object } => self.watch(session, object).map(done),
            Request::WatchRange { object, offset, length } => {
                self.watch_range(session, object, (offset, length), give)
            }
            Request::Unwatch { number } => {
                self.machine.watches.end(session.id, number);
                Ok(Reply::Done)
            }
            Request::Notify { object, offset, length } => {
                self.notify(session, object, (offset, length)).map(done)
            }
            Request::Snapshot(asked) => self.snapshot(session, &asked, give),
            Request::CreateNameless { options, nonce } => {
                self.create_nameless(session, options, (nonce, repeated), give)
            }
            Request::Offer { channel, token, what } => self.offer(session, channel, token, what),
            Request::WithdrawOffer { channel, token } => {
                self.withdraw_offer(session, channel, token).map(done)
            }
            Request::TakeOffer { channel, token } => self.take_offer(session, channel, token, give),
            Request::Place { object } => self.place(session, object, give),
            Request::Member => self.member_of(session).map(Reply::Member),
            Request::Words { object } => {
                give.push(self.words(session, object)?);
                Ok(Reply::Done)
            }
            Request::Token { object, index, wanted } => {
                self.told_of_token(session, object, index, wanted);
                Ok(Reply::Done)
            }
            Request::Released { object, given } => self.released(session, object, given).map(done),
            Request::MapInfo { name } => self.map_info(session, &name),
            Request::Status => Ok(Reply::Status(Box::new(self.status()))),
            Request::Counts { name, after, hottest } => self.counts(session, name.as_ref(), after, hottest),
            Request::Trace { name, place } => self.traced(session, &name, place),
            Request::Hosts => {
                let mut hosts = self.cluster_hosts();
                let trouble = hosts.iter_mut().map(|host| host.trouble.take()).collect();
                Ok(Reply::Hosts(hosts, trouble))
            }
            Request::Stop { force } => self.stop(session, force).map(done),
            Request::Replace { program, keeper } => self.replace(session, program, keeper).map(done),
            Request::ServePager { pager } => {
                let socket = session.socket.clone();
                self.pagers.connect(pager.as_str(), session.id.0, session.credentials.uid, socket)?;
                self.keep_pager(session, pager.as_str());
                session.begins_to_serve.store(true, std::sync::atomic::Ordering::Relaxed);
                Ok(Reply::Done)
            }
            Request::PagerQueues => self.pager_queues(session, give),
            Request::Return { session: former } => self.returned(session, former, number).map(done),
            Request::Reattach { object, access } => self.reattach(session, object, access, fds).map(done),
            Request::Hello { .. } | Request::PagerAnswer { .. } | Request::Prefetch { .. } => {
                Err(Error::new(ErrorKind::Protocol, "not a request to be answered here"))
            }
        }
    }
}

impl Host {
    /// Whether the control thread itself answers: no disk, no waiting, no long scan. The last to
    /// close a removed object ends it, and of one that hosts share the others are told what is not
    /// held any more.
    fn is_quick(&self, request: &Request) -> bool {
        match request {
            Request::Close { object } => self.object(*object).map_or(true, |object| {
                let record = object.record();
                let has_locks = synchronisation::holds_locks(&record.options);
                record.name.is_some() && !record.options.is_shared() && !has_locks
            }),
            _ => matches!(
                request,
                Request::Status
                    | Request::ServePager { .. }
                    | Request::PagerQueues
                    | Request::Watch { .. }
                    | Request::Unwatch { .. }
                    | Request::Released { .. }
                    | Request::Token { .. }
            ),
        }
    }

    /// Whether the request opens what is ready to be opened. Else clients may have to come back first, or a journal be
    /// redone; the control thread, through which they come, must not wait for that.
    fn opens_at_once(&self, session: &Session, request: &Request) -> bool {
        let Request::Open { name, access } = request else { return false };
        if session.is_closing() {
            return false;
        }
        let Ok(object) = self.lookup(session, name, *access) else { return !self.may_be_elsewhere() };
        if object.record().options.is_wired() {
            return false; // it may have to move first
        }
        let ready = || object.cache.try_lock().is_ok_and(|cache| cache.is_some());
        if !object.is_controlled() {
            // A file is opened anew for a reader: not here, as its file system may have to wait for a disk.
            let is_memory = object.record().options.pager == PagerKind::Anonymous;
            return object.descriptor().is_some() && (is_memory || access.writes());
        }
        // Its home's own cache is not what is opened.
        let explicit = object.record().options.coherence == Coherence::Explicit;
        self.returning.is_over() && !explicit && ready()
    }
}

/// Where a request is worked on.
pub(super) enum Place {
    Pool(Arc<Workers>),
    Cache(Arc<Cache>),
    Pager(Arc<ObjectThreads>),
}

impl Place {
    pub(super) fn run(&self, share: Arc<Share>, job: impl FnOnce() + Send + 'static) {
        match self {
            Place::Pool(pool) => share.run(pool, job),
            Place::Cache(cache) => cache.run_request(Some(share), job),
            Place::Pager(threads) => {
                let kept = threads.clone(); // its user's bound holds as long as somebody has it
                threads.run_request(Some(share), move || {
                    job();
                    drop(kept);
                });
            }
        }
    }
}

/// What to do about a disk or memory that is full, where whoever noticed it does not say.
fn advise(mut error: Error) -> Error {
    if error.kind == ErrorKind::NoSpace && !error.message.contains("try again") {
        error.message += "; nothing is lost: free disk space (or memory), then try again";
    }
    error
}

/// Of what came with a request: what it may bring. No request brings a socket, whose close may wait.
fn take_called_for(request: &Request, came: &mut Vec<OwnedFd>) -> Vec<OwnedFd> {
    let called_for = came.len().min(descriptors_of(request));
    if came[..called_for].iter().any(is_socket) { Vec::new() } else { came.drain(..called_for).collect() }
}

/// Descriptors that a request may bring.
fn descriptors_of(request: &Request) -> usize {
    match request {
        Request::Create { .. } | Request::Reattach { .. } => 1,
        Request::Map(_) => 3, // userfaultfd, pagemap, claim words
        _ => 0,
    }
}

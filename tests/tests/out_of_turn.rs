//! A host made by hand that says nothing wrong, but late, or so much that others would have to wait for it.

use commonhold::ErrorKind;
use commonhold_coherence::{Access as Right, HostId, Span, central};
use commonhold_host::cluster::wire::{Answer, Call, Message};
use commonhold_host::shared::Said;
use commonhold_object::{Access, Credentials, Name};
use commonhold_tests::cluster::{leased_cluster, sharers};
use commonhold_tests::stranger::Stranger;
use commonhold_tests::{PAGE, TestHost, wait};

const PAGES: u64 = 4;

/// A member of the cluster that has `/shared` open.
struct Guest {
    stranger: Stranger,
    home: HostId,
    object: u128,
}

impl Guest {
    /// Of the home that keeps the list. It renews no lease: that is to be long.
    fn of(home: &TestHost) -> Guest {
        let known = home.connect().hosts().unwrap();
        let address = known.iter().find(|host| host.is_this).unwrap().address.to_string();
        let stranger = Stranger::new(70_000, "guest");
        let home = stranger.connect(&address).unwrap();
        stranger.join(home, Vec::new()).unwrap();
        let open = Call::Open { name: Name::new("/shared").unwrap(), who: root(), access: Access::ReadWrite };
        let object = match stranger.ask(home, open).unwrap() {
            Answer::Opened(shared) => shared.object,
            other => panic!("{other:?}"),
        };
        Guest { stranger, home, object }
    }

    /// Begins with the object under that number.
    fn begins(&self, number: u64) {
        wait::until("the home lets it begin", || {
            let call =
                Call::Use { object: self.object, who: root(), access: Access::ReadWrite, number, types: 0 };
            match self.stranger.ask(self.home, call) {
                Ok(_) => Some(()),
                Err(why) if why.kind == ErrorKind::Busy => None,
                Err(why) => panic!("{why}"),
            }
        });
    }

    fn says(&self, message: central::Message, bytes: &[u8]) {
        let message =
            Message::Coherence { object: self.object, home: None, messages: vec![Said::Central(message)] };
        self.stranger.tell(self.home, &message, bytes).unwrap();
    }

    /// Waits for the next thing that the home's scheduler says; nothing else is to come.
    fn hears(&self) -> central::Message {
        match self.stranger.hears() {
            Message::News(_) => self.hears(),
            Message::Coherence { messages, .. } => match &messages[..] {
                [Said::Central(message)] => message.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Gets a page to write.
    fn takes(&self, page: u32) {
        let span = Span::one(page);
        self.says(central::Message::Request { span, access: Right::Write, has_copy: false }, &[]);
        let granted = self.hears();
        assert!(matches!(granted, central::Message::Grant { access: Right::Write, .. }), "{granted:?}");
    }
}

fn root() -> Credentials {
    Credentials { uid: 0, gid: 0, groups: vec![] }
}

/// Its calls may be carried out late, by whom it did not wait for: what it has since then stays its own.
#[test]
fn what_was_given_up_before_a_host_began_again_is_not_taken_from_it() {
    let hosts = leased_cluster(2, 120);
    let workers = sharers(&hosts, PAGES * PAGE as u64, "central");
    let guest = Guest::of(&hosts[0]);
    let object = guest.object;
    guest.begins(7);
    guest.takes(0);
    for late in [
        Call::GaveUp { home: guest.home, object, former: guest.stranger.me.host, number: 6 },
        Call::GaveUp { home: guest.home, object, former: guest.stranger.me.host, number: 7 },
        Call::Leave { object, number: 5, tokens: None },
    ] {
        guest.stranger.ask(guest.home, late).unwrap();
    }
    // It is asked for the page as the one that has it, and by nothing else.
    workers[1].send("get m 0");
    let recalled = guest.hears();
    assert_eq!(recalled, central::Message::Recall { page: 0, keep: Right::Read });
    let message = central::Message::PageOut { page: 0, answers: true, keeps: Right::Read };
    guest.says(message, &[0x55; PAGE]);
    assert_eq!(workers[1].answer().unwrap(), 0x55.to_string());
    // What it gives up now it gives up; it does not give the page back, and has not got it newest.
    let gives_up = Call::GaveUp { home: guest.home, object, former: guest.stranger.me.host, number: 8 };
    guest.stranger.ask(guest.home, gives_up).unwrap();
    workers[1].ok("put m 0 7");
    let begins = Call::Use { object, who: root(), access: Access::Read, number: 8, types: 0 };
    assert_eq!(guest.stranger.ask(guest.home, begins).unwrap_err().kind, ErrorKind::Busy);
    guest.begins(9);
}

/// Who waits for pages that do not come keeps nobody from the registry, nor from pages that are asked back.
#[test]
fn questions_that_take_long_hold_up_no_others() {
    let hosts = leased_cluster(2, 120);
    let workers = sharers(&hosts, PAGES * PAGE as u64, "central");
    let guest = Guest::of(&hosts[0]);
    guest.begins(1);
    guest.takes(0);
    let waits = || Call::Sync { object: guest.object, offset: 0, length: PAGE as u64, freeze: false };
    for number in 1000..1100 {
        guest.stranger.tell(guest.home, &Message::Call { number, call: waits() }, &[]).unwrap();
    }
    let asked = Call::Lookup(Name::new("/shared").unwrap());
    guest.stranger.tell(guest.home, &Message::Call { number: 1, call: asked }, &[]).unwrap();
    let mut recalls = 0;
    loop {
        match guest.stranger.hears() {
            Message::Answer { number, answer } => {
                assert!(number == 1 && answer.is_ok(), "{number} is answered first: {answer:?}");
                break;
            }
            Message::Coherence { .. } => recalls += 1,
            Message::News(_) => {}
            other => panic!("{other:?}"),
        }
    }
    // A name is to be had, and a host leaves and comes.
    workers[1].ok("create n /new size=4096 central");
    if recalls == 0 {
        assert!(matches!(guest.hears(), central::Message::Recall { page: 0, .. }));
    }
    guest.says(central::Message::PageOut { page: 0, answers: true, keeps: Right::None }, &[3; PAGE]);
    assert_eq!(workers[1].ok("get m 0"), "3");
}

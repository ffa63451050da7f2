// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/sessions.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace verbena::nfs::v4 {

namespace {

// Less than that holds no SEQUENCE and one operation more, with the headers of RPC.
constexpr std::uint32_t least_message = 256;

} // namespace

std::size_t session::bytes_of(const channel_attrs4& fore) noexcept
{
    constexpr std::size_t items = xdr::encoder::max_payloads * sizeof(xdr::payload_item);
    return fore.maxrequests * (sizeof(slot) + items + std::size_t(fore.maxresponsesize_cached));
}

session::session(const sessionid4& id, clientid4 client, files::client_id state, const channel_attrs4& fore,
                 bool must_reclaim)
    : id_(id),
      client_(client),
      state_(state),
      fore_(fore),
      slots_(fore.maxrequests),
      must_reclaim_(must_reclaim)
{
}

void call_digest::mix(std::uint64_t value) noexcept
{
    value_ = (value_ ^ value) * 0x9e3779b97f4a7c15;
    value_ ^= value_ >> 32;
}

namespace {

// What stands at `at`, in whichever piece. Operations are whole words, so that few of them lie in both.
std::uint32_t word_at(const call_digest::bytes_of& bytes, std::size_t at) noexcept
{
    if (at + 4 <= bytes.first.size())
        return xdr::load_u32(bytes.first.data() + at);
    if (at >= bytes.first.size())
        return xdr::load_u32(bytes.second.data() + (at - bytes.first.size()));
    std::array<std::byte, 4> word{};
    const auto rest = bytes.first.subspan(at);
    std::ranges::copy(rest, word.begin());
    std::ranges::copy(bytes.second.first(4 - rest.size()),
                      word.begin() + static_cast<std::ptrdiff_t>(rest.size()));
    return xdr::load_u32(word.data());
}

} // namespace

// No secret: who deceives it gets what its own call was answered.
void call_digest::add(nfs_opnum4 operation, const bytes_of& bytes) noexcept
{
    ++operations_;
    // Up to the length of a large item, which is the last argument of WRITE, and for a link stands amid those of
    // CREATE.
    constexpr std::size_t before_data = 36, before_link = 12;
    std::size_t size = bytes.first.size() + bytes.second.size();
    const bool makes_link = operation == nfs_opnum4::create && size >= before_link &&
                            word_at(bytes, 4) == static_cast<std::uint32_t>(nfs_ftype4::lnk);
    if (operation == nfs_opnum4::write || makes_link)
        size = std::min(size, makes_link ? before_link : before_data);
    mix(bytes, size);
}

void call_digest::mix(const bytes_of& bytes, std::size_t size) noexcept
{
    std::size_t at = 0;
    for (; at + 8 <= size; at += 8) {
        if (at + 8 <= bytes.first.size())
            mix(xdr::load_u64(bytes.first.data() + at));
        else
            mix(std::uint64_t(word_at(bytes, at)) << 32 | word_at(bytes, at + 4));
    }
    if (at + 4 <= size)
        mix(word_at(bytes, at));
}

call_mark::call_mark(const rpc::principal& who, std::uint32_t count, bool kept,
                     const call_digest::bytes_of& begins) noexcept
    : user_(who.is_anonymous() ? 0 : who.uid()),
      group_(who.is_anonymous() ? 0 : who.gid()),
      anonymous_(who.is_anonymous()),
      kept_(kept),
      operations_(count)
{
    begins_.mix(begins, begins.first.size() + begins.second.size());
}

slot_verdict slot_use::begin(session& of, const SEQUENCE4args& args, const call_mark& mark)
{
    const auto refuse = [this](nfsstat4 why) {
        status_ = why;
        return slot_verdict::refused;
    };
    if (args.slotid >= of.slots())
        return refuse(nfsstat4::badslot);
    if (args.highest_slotid >= of.slots())
        return refuse(nfsstat4::bad_high_slot);
    session::slot& s = of.slots_[args.slotid];
    const std::lock_guard held(s.lock);
    if (s.number.is_next(args.sequenceid) && !s.running) {
        // Counted first, then asked: of session::end() and this one sees the other.
        of.running_.fetch_add(1, std::memory_order_seq_cst);
        if (of.is_over_.load(std::memory_order_seq_cst)) {
            of.running_.fetch_sub(1, std::memory_order_release);
            return refuse(nfsstat4::badsession);
        }
        number_before_ = std::exchange(s.number, s.number.next());
        s.running = true;
        mark_before_ = std::exchange(s.mark, mark);
        session_ = &of;
        slot_ = args.slotid;
        running_ = true;
        return slot_verdict::run;
    }
    if (!s.number.is_last(args.sequenceid))
        return refuse(nfsstat4::seq_misordered);
    if (s.running && s.mark == mark && s.waiting == nullptr) {
        session_ = &of;
        slot_ = args.slotid;
        call_ = mark;
        return slot_verdict::joins;
    }
    // Whoever asks what became of a call, by a SEQUENCE alone, hears that it runs still.
    if (s.running)
        return refuse(nfsstat4::delay);
    if (s.mark != mark)
        return refuse(nfsstat4::seq_false_retry);
    if (!s.kept)
        return slot_verdict::uncached;
    reply_ = s.reply;
    items_ = s.items;
    digest_ = s.digest;
    return slot_verdict::repeat;
}

bool slot_use::stands_in_line(reactor& here)
{
    session::slot& s = session_->slots_[slot_];
    const std::lock_guard held(s.lock);
    if (!s.running || s.mark != call_ || s.waiting != nullptr)
        return false;
    here_ = &here;
    s.waiting = this;
    return true;
}

bool slot_use::finish_unless_waited_for()
{
    if (!running_)
        return true;
    session::slot& s = session_->slots_[slot_];
    const std::lock_guard held(s.lock);
    if (s.waiting != nullptr)
        return false;
    end(s, false);
    return true;
}

// The run that it waited for may have ended on another shard.
void slot_use::wake(session::slot& s) noexcept
{
    if (slot_use* const waiting = std::exchange(s.waiting, nullptr))
        waiting->here_->post_remote(*waiting);
}

void slot_use::deliver() noexcept
{
    mark_.clear();
    here_->post(std::exchange(suspended_, {}));
}

void slot_use::finish()
{
    if (!running_)
        return;
    session::slot& s = session_->slots_[slot_];
    const std::lock_guard held(s.lock);
    end(s, false);
}

void slot_use::finish(std::span<const std::byte> reply, std::span<const xdr::payload_item> items)
{
    if (!running_)
        return;
    session::slot& s = session_->slots_[slot_];
    const std::lock_guard held(s.lock);
    s.kept = false; // there may be no memory for the items: then the call before has no reply any more
    s.reply.assign(reply.begin(), reply.end());
    s.items.assign(items.begin(), items.end());
    s.digest = digest_;
    end(s, true);
}

void slot_use::end(session::slot& s, bool kept) noexcept
{
    s.kept = kept;
    s.running = false;
    running_ = false;
    session_->running_.fetch_sub(1, std::memory_order_release);
    wake(s);
}

slot_use::~slot_use()
{
    if (counts_)
        finish();
    if (!running_)
        return;
    session::slot& s = session_->slots_[slot_];
    const std::lock_guard held(s.lock);
    s.number = number_before_;
    s.running = false;
    s.mark = mark_before_; // and what was kept is that call's still
    session_->running_.fetch_sub(1, std::memory_order_release);
    wake(s); // a repeat runs in its place
}

session_table::session_table(const siphash_key& key, std::uint32_t epoch, duration lease,
                             session_limits limits)
    : key_(key), epoch_(epoch), lease_(lease), limits_(std::move(limits))
{
}

session_table::client* session_table::find_client(clientid4 id) noexcept
{
    const auto found = clients_.find(id);
    return found == clients_.end() ? nullptr : &found->second;
}

const session_table::client* session_table::find_client(clientid4 id) const noexcept
{
    const auto found = clients_.find(id);
    return found == clients_.end() ? nullptr : &found->second;
}

void session_table::release(peer_map::iterator peer)
{
    if (peer->second.clients == 0)
        peers_.erase(peer);
}

void session_table::erase_session(const sessionid4& id)
{
    const auto found = sessions_.find(id);
    if (found == sessions_.end())
        return;
    if (client* const c = find_client(found->second->client())) {
        const std::size_t bytes = session::bytes_of(found->second->fore());
        slot_bytes_ -= bytes;
        c->peer->second.slot_bytes -= bytes;
        --c->peer->second.sessions;
        std::erase(c->sessions, id);
    }
    found->second->end(); // calls that have found it may not have begun yet
    sessions_.erase(found);
}

void session_table::erase(clientid4 id)
{
    client* const c = find_client(id);
    if (c == nullptr)
        return;
    while (!c->sessions.empty())
        erase_session(sessionid4(c->sessions.back()));
    if (const auto owner = owners_.find(c->owner); owner != owners_.end()) {
        if (owner->second.confirmed == id)
            owner->second.confirmed = 0;
        if (owner->second.unconfirmed == id)
            owner->second.unconfirmed = 0;
        if (owner->second.confirmed == 0 && owner->second.unconfirmed == 0)
            owners_.erase(owner);
    }
    if (!c->confirmed) {
        unconfirmed_.erase(c->by_age);
        c->peer->second.unconfirmed.erase(c->by_age_of_peer);
    }
    by_state_.erase(c->state);
    const peer_map::iterator peer = c->peer;
    --peer->second.clients;
    clients_.erase(id);
    release(peer);
}

void session_table::drop_old(time_point now)
{
    for (auto at = unconfirmed_.begin(); at != unconfirmed_.end();) {
        const client& c = *find_client(*at);
        if (now - c.exchanged <= lease_)
            return;
        ++at;
        if (!c.creating)
            erase(clientid4(c.id));
    }
}

// The oldest one that is not about to be confirmed: few are.
bool session_table::drop_first(const ids& of)
{
    for (const clientid4 id : of) {
        if (!find_client(id)->creating) {
            erase(clientid4(id));
            return true;
        }
    }
    return false;
}

// For one more, which the peer's number counts already.
session_table::shortage session_table::make_room(peer_entry& peer, time_point now)
{
    if (peer.clients > limits_.clients_per_peer && !drop_first(peer.unconfirmed))
        return shortage::of_peer;
    if (clients_.size() >= limits_.clients)
        drop_old(now);
    if (clients_.size() >= limits_.clients && !drop_first(peer.unconfirmed) && !drop_first(unconfirmed_))
        return shortage::of_all;
    return shortage::none;
}

// What keeps a client of the same principal from the name of `holder`, for as long as that doesn't yield (8881 18.35.4, case 5).
nfsstat4 session_table::stands_against(const client& holder, const verifier4& verifier,
                                       const std::string& group) noexcept
{
    // With AUTH_SYS anybody claims to be anybody. A client that moved comes again after its lease.
    return holder.verifier != verifier && holder.peer->first != group ? nfsstat4::delay : nfsstat4::ok;
}

// Then it has not gone, whatever its lease.
bool session_table::runs_something(const client& c) const noexcept
{
    return std::ranges::any_of(c.sessions, [this](const sessionid4& id) {
        const auto found = sessions_.find(id);
        return found != sessions_.end() && found->second->running() != 0;
    });
}

session_table::exchanged session_table::exchange_id(const client_owner4& owner, bool update,
                                                    principal_digest who, std::string_view from,
                                                    time_point now, files::client_id yields)
{
    const std::lock_guard held(lock_);
    exchanged out;
    const std::string name(reinterpret_cast<const char*>(owner.ownerid.data()), owner.ownerid.size());
    const std::string group = peer_group(from, limits_.v6_prefix);
    const auto known = owners_.find(name);
    client* confirmed = known == owners_.end() ? nullptr : find_client(known->second.confirmed);
    if (update) {
        // Cases 6 to 9.
        if (confirmed == nullptr)
            out.status = nfsstat4::noent;
        else if (confirmed->verifier != owner.verifier) // also of another principal
            out.status = nfsstat4::not_same;
        else if (confirmed->who != who)
            out.status = nfsstat4::perm;
    } else if (confirmed != nullptr && confirmed->who != who) {
        // Case 3.
        if (confirmed->state != yields) {
            out.status = nfsstat4::clid_inuse;
            out.rival = confirmed->state;
        } else { // what it had in the state layer is gone
            erase(clientid4(confirmed->id));
            confirmed = nullptr;
        }
    } else if (confirmed != nullptr && confirmed->state != yields) {
        // Case 5 from elsewhere.
        out.status = stands_against(*confirmed, owner.verifier, group);
        if (out.status != nfsstat4::ok)
            out.rival = confirmed->state;
    }
    if (out.status != nfsstat4::ok) {
        if (confirmed != nullptr && !update)
            out.held_by = confirmed->from;
        return out;
    }
    if (confirmed != nullptr && confirmed->verifier == owner.verifier) {
        // Cases 2 and 6.
        out.client = confirmed->id;
        out.sequence = confirmed->sequence + 1;
        out.confirmed = true;
        return out;
    }
    // Cases 1, 4 and 5.
    if (const auto again = owners_.find(name); again != owners_.end() && again->second.unconfirmed != 0) {
        if (const client* const older = find_client(again->second.unconfirmed); older && older->creating) {
            out.status = nfsstat4::delay;
            return out;
        }
        erase(clientid4(again->second.unconfirmed));
    }
    const peer_map::iterator peer = peers_.try_emplace(group).first;
    ++peer->second.clients;
    out.short_of = make_room(peer->second, now);
    if (out.short_of != shortage::none) {
        --peer->second.clients;
        release(peer);
        out.status = nfsstat4::delay;
        return out;
    }
    client made;
    made.id = make_client_id();
    made.owner = name;
    made.verifier = owner.verifier;
    made.who = who;
    made.from = from;
    made.peer = peer;
    made.exchanged = now;
    // What a CREATE_SESSION of sequence 0 is answered (8881 18.36.4).
    made.last.status = nfsstat4::seq_misordered;
    made.by_age = unconfirmed_.insert(unconfirmed_.end(), made.id);
    made.by_age_of_peer = peer->second.unconfirmed.insert(peer->second.unconfirmed.end(), made.id);
    out.client = made.id;
    out.sequence = 1;
    owners_[name].unconfirmed = made.id;
    clients_.emplace(made.id, std::move(made));
    return out;
}

nfsstat4 session_table::grant(const channel_attrs4& asked, channel_attrs4& granted) const noexcept
{
    if (asked.maxrequestsize < least_message || asked.maxresponsesize < least_message ||
        asked.maxoperations < 2 || asked.maxrequests == 0)
        return nfsstat4::toosmall;
    granted = channel_attrs4();
    granted.maxrequestsize = std::min(asked.maxrequestsize, limits_.request_size);
    granted.maxresponsesize = std::min(asked.maxresponsesize, limits_.response_size);
    granted.maxresponsesize_cached = std::min(asked.maxresponsesize_cached, limits_.cached_response_size);
    granted.maxoperations = std::min(asked.maxoperations, limits_.operations);
    granted.maxrequests = std::min(asked.maxrequests, limits_.slots);
    return nfsstat4::ok;
}

// As many slots as asked for, as long as they are no large part of what is left.
session_table::shortage session_table::grant_slots(const client& c, channel_attrs4& granted) const noexcept
{
    constexpr std::size_t part = 16;
    const peer_entry& peer = c.peer->second;
    channel_attrs4 one = granted;
    one.maxrequests = 1;
    const std::size_t each = session::bytes_of(one);
    const auto slots_in = [each](std::size_t bytes, std::size_t taken, std::size_t sessions,
                                 std::size_t there) {
        const std::size_t left = taken < bytes ? (bytes - taken) / each : 0;
        const std::size_t others = there < sessions ? sessions - there - 1 : 0;
        return left == 0 ? 0 : 1 + (left - 1 > others ? left - 1 - others : 0) / part;
    };
    const std::size_t of_peer =
        slots_in(limits_.slot_bytes_per_peer, peer.slot_bytes, limits_.sessions_per_peer, peer.sessions);
    const std::size_t of_all = slots_in(limits_.slot_bytes, slot_bytes_, limits_.sessions, sessions_.size());
    if (peer.sessions >= limits_.sessions_per_peer || of_peer == 0)
        return shortage::of_peer;
    if (sessions_.size() >= limits_.sessions || of_all == 0)
        return shortage::of_all;
    granted.maxrequests =
        static_cast<std::uint32_t>(std::min<std::size_t>({granted.maxrequests, of_peer, of_all}));
    return shortage::none;
}

session_table::creation session_table::begin_creation(const CREATE_SESSION4args& args, principal_digest who,
                                                      time_point now)
{
    const std::lock_guard held(lock_);
    creation out;
    client* const c = find_client(args.clientid);
    if (c == nullptr || (!c->confirmed && now - c->exchanged > lease_)) {
        out.status = nfsstat4::stale_clientid;
        return out;
    }
    if (c->creating) {
        out.status = nfsstat4::delay;
        return out;
    }
    if (c->who != who) {
        out.status = nfsstat4::clid_inuse;
        return out;
    }
    if (args.sequence == c->sequence) {
        out.status = c->last.status;
        out.repeat = c->last;
        return out;
    }
    if (args.sequence != c->sequence + 1) {
        out.status = nfsstat4::seq_misordered;
        return out;
    }
    if ((args.flags & ~create_session4::all) != 0) {
        out.status = nfsstat4::inval;
        refuse(*c, args, out.status);
        return out;
    }
    channel_attrs4 granted;
    const channel_attrs4& back = args.back_chan_attrs;
    const bool says_something =
        (back.maxrequestsize | back.maxresponsesize | back.maxoperations | back.maxrequests) != 0;
    if (says_something || (args.flags & create_session4::conn_back_chan) != 0)
        out.status = grant(args.back_chan_attrs, granted);
    if (out.status == nfsstat4::ok)
        out.status = grant(args.fore_chan_attrs, granted);
    if (out.status == nfsstat4::ok && c->sessions.size() >= limits_.sessions_per_client)
        out.status = nfsstat4::nospc;
    if (out.status == nfsstat4::ok) {
        out.short_of = grant_slots(*c, granted);
        // Others may give it back.
        out.status = out.short_of == shortage::none ? nfsstat4::ok : nfsstat4::delay;
    }
    if (out.status != nfsstat4::ok) {
        refuse(*c, args, out.status);
        return out;
    }
    c->creating = true;
    out.confirms = !c->confirmed;
    out.state = c->state;
    if (out.confirms) {
        out.key = c->owner;
        if (const client* const older = find_client(owners_[c->owner].confirmed)) {
            out.older = older->state;
            out.stands_against = stands_against(*older, c->verifier, c->peer->first);
            out.held_by = older->from;
        }
    }
    return out;
}

// Nobody guesses another one's.
clientid4 session_table::make_client_id()
{
    for (;;) {
        std::array<std::byte, 9> serial{std::byte('c')};
        xdr::store_u64(serial.data() + 1, std::uint64_t(epoch_) << 32 | ++last_client_);
        const clientid4 id = clientid4(epoch_) << 32 | static_cast<std::uint32_t>(siphash(key_, serial));
        if (!clients_.contains(id))
            return id;
    }
}

sessionid4 session_table::make_session_id()
{
    std::array<std::byte, 8> serial;
    xdr::store_u64(serial.data(), std::uint64_t(epoch_) << 32 | ++last_session_);
    sessionid4 id;
    std::copy(serial.begin(), serial.end(), id.begin());
    xdr::store_u64(id.data() + 8, siphash(key_, serial));
    return id;
}

CREATE_SESSION4res session_table::end_creation(const CREATE_SESSION4args& args, files::client_id state,
                                               bool must_reclaim, bool back)
{
    const std::lock_guard held(lock_);
    CREATE_SESSION4res res;
    client* const c = find_client(args.clientid);
    if (c == nullptr) {
        res.status = nfsstat4::stale_clientid;
        return res;
    }
    c->must_reclaim = c->must_reclaim || must_reclaim;
    // First what may find no memory.
    (void)grant(args.fore_chan_attrs, res.fore_chan_attrs);
    if (grant_slots(*c, res.fore_chan_attrs) != shortage::none) { // others were quicker
        res.status = nfsstat4::delay;
        return res;
    }
    res.sessionid = make_session_id();
    c->sessions.push_back(res.sessionid);
    by_state_[state] = c->id;
    sessions_.emplace(res.sessionid, std::make_shared<session>(res.sessionid, c->id, state,
                                                               res.fore_chan_attrs, c->must_reclaim));
    const std::size_t bytes = session::bytes_of(res.fore_chan_attrs);
    slot_bytes_ += bytes;
    c->peer->second.slot_bytes += bytes;
    ++c->peer->second.sessions;
    c->sequence = args.sequence;
    c->state = state;
    if (!c->confirmed) {
        owner_entry& owner = owners_[c->owner];
        // The client before its restart goes, with its sessions.
        const clientid4 older = std::exchange(owner.confirmed, c->id);
        owner.unconfirmed = 0;
        c->confirmed = true;
        unconfirmed_.erase(c->by_age);
        c->peer->second.unconfirmed.erase(c->by_age_of_peer);
        if (older != 0)
            erase(older);
    }
    res.sequence = args.sequence;
    res.flags = back ? create_session4::conn_back_chan : 0;
    // None of these may be another one than the client's (8881 18.36.3).
    res.back_chan_attrs = args.back_chan_attrs;
    res.back_chan_attrs.headerpadsize = 0;
    res.back_chan_attrs.rdma_ird.reset();
    c->last = res;
    return res;
}

// With `lock_` held since its number was found to be the next one, or with `creating` set since then.
void session_table::refuse(client& c, const CREATE_SESSION4args& args, nfsstat4 why) noexcept
{
    if (why == nfsstat4::delay || why == nfsstat4::stale_clientid || why == nfsstat4::toosmall)
        return;
    c.sequence = args.sequence;
    c.last = CREATE_SESSION4res();
    c.last.status = why;
}

void session_table::refuse_creation(const CREATE_SESSION4args& args, nfsstat4 why) noexcept
{
    const std::lock_guard held(lock_);
    client* const c = find_client(args.clientid);
    // Without `creating` another one with this number may have begun; and a session may have been made of it.
    if (c != nullptr && c->creating && args.sequence == c->sequence + 1)
        refuse(*c, args, why);
}

void session_table::reclaimed(clientid4 id)
{
    const std::lock_guard held(lock_);
    client* const c = find_client(id);
    if (c == nullptr)
        return;
    c->must_reclaim = false;
    for (const sessionid4& name : c->sessions) {
        if (const auto s = sessions_.find(name); s != sessions_.end())
            s->second->reclaimed();
    }
}

void session_table::leave_creation(clientid4 id) noexcept
{
    const std::lock_guard held(lock_);
    if (client* const c = find_client(id))
        c->creating = false;
}

std::shared_ptr<session> session_table::find(const sessionid4& id) const
{
    const std::lock_guard held(lock_);
    const auto found = sessions_.find(id);
    return found == sessions_.end() ? nullptr : found->second;
}

std::shared_ptr<session> recent_sessions::find(const sessionid4& id)
{
    place& at = places_[std::to_integer<std::size_t>(id.back()) % places_.size()];
    if (at.id == id) {
        if (std::shared_ptr<session> known = at.session.lock(); known && !known->is_over())
            return known;
    }
    std::shared_ptr<session> found = all_.find(id);
    at.id = id;
    at.session = found;
    return found;
}

std::vector<std::shared_ptr<session>> session_table::of(files::client_id state) const
{
    const std::lock_guard held(lock_);
    std::vector<std::shared_ptr<session>> all;
    const auto named = by_state_.find(state);
    const client* const c = named == by_state_.end() ? nullptr : find_client(named->second);
    if (c == nullptr)
        return all;
    for (const sessionid4& id : c->sessions) {
        if (const auto found = sessions_.find(id); found != sessions_.end())
            all.push_back(found->second);
    }
    return all;
}

bool session_table::lost_all_ways_to(clientid4 id) const noexcept
{
    const std::lock_guard held(lock_);
    const client* const c = find_client(id);
    bool lost = false;
    for (std::size_t i = 0; c != nullptr && i < c->sessions.size(); ++i) {
        const auto found = sessions_.find(c->sessions[i]);
        if (found != sessions_.end() && found->second->back().is_up())
            return false;
        lost = lost || (found != sessions_.end() && found->second->back().is_down());
    }
    return lost;
}

time_point session_table::last_heard(files::client_id state) const noexcept
{
    const std::lock_guard held(lock_);
    const auto named = by_state_.find(state);
    const client* const c = named == by_state_.end() ? nullptr : find_client(named->second);
    return c == nullptr ? time_point::min() : heard_from(*c);
}

time_point session_table::heard_from(const client& c) const noexcept
{
    time_point last = time_point::min();
    for (const sessionid4& id : c.sessions) {
        if (const auto found = sessions_.find(id); found != sessions_.end())
            last = std::max(last, found->second->last_heard());
    }
    return last;
}

std::vector<session_table::client_report>
session_table::clients_behind(const std::optional<std::string>& name, std::size_t most) const
{
    std::vector<client_report> all;
    const std::lock_guard held(lock_);
    auto at = name ? owners_.upper_bound(*name) : owners_.begin();
    for (std::size_t i = 0; i < most && at != owners_.end(); ++i, ++at) {
        for (const clientid4 id : {at->second.confirmed, at->second.unconfirmed}) {
            const client* const c = find_client(id);
            if (c == nullptr)
                continue;
            const auto first = c->sessions.empty() ? sessions_.end() : sessions_.find(c->sessions.front());
            std::optional<std::uint32_t> minor;
            if (first != sessions_.end())
                minor = first->second->back().minor();
            all.push_back({at->first, c->id, c->from, c->confirmed, c->sessions.size(),
                           std::max(heard_from(*c), c->exchanged), c->state, minor});
        }
    }
    return all;
}

bool session_table::drop_unconfirmed(clientid4 id)
{
    const std::lock_guard held(lock_);
    const client* const c = find_client(id);
    if (c == nullptr || c->confirmed || c->creating)
        return false;
    erase(id);
    return true;
}

nfsstat4 session_table::destroy_session(const sessionid4& id, principal_digest who, unsigned own)
{
    const std::lock_guard held(lock_);
    const auto found = sessions_.find(id);
    if (found == sessions_.end())
        return nfsstat4::badsession;
    const client* const c = find_client(found->second->client());
    if (c == nullptr || c->who != who)
        return nfsstat4::badsession;
    if (found->second->running() > own)
        return nfsstat4::delay;
    erase_session(sessionid4(id));
    return nfsstat4::ok;
}

nfsstat4 session_table::may_destroy_client(clientid4 id, principal_digest who, files::client_id& state) const
{
    const std::lock_guard held(lock_);
    const client* const c = find_client(id);
    if (c == nullptr || c->who != who)
        return nfsstat4::stale_clientid;
    if (!c->sessions.empty() || c->creating)
        return nfsstat4::clientid_busy;
    state = c->state;
    return nfsstat4::ok;
}

void session_table::forget(clientid4 id)
{
    const std::lock_guard held(lock_);
    erase(id);
}

session_table::name session_table::name_of(files::client_id state) const
{
    const std::lock_guard held(lock_);
    const auto found = by_state_.find(state);
    if (found == by_state_.end())
        return {};
    const client& c = *find_client(found->second);
    return {c.id, c.creating, runs_something(c), !c.sessions.empty()};
}

std::string session_table::address_of(files::client_id state) const
{
    const std::lock_guard held(lock_);
    const auto found = by_state_.find(state);
    const client* const c = found == by_state_.end() ? nullptr : find_client(found->second);
    return c == nullptr ? std::string() : c->from;
}

std::vector<files::client_id> session_table::states_of(std::string_view from) const
{
    const std::string group = peer_group(from, limits_.v6_prefix);
    const std::lock_guard held(lock_);
    std::vector<files::client_id> all;
    for (const auto& [state, id] : by_state_) {
        if (find_client(id)->peer->first == group)
            all.push_back(state);
    }
    return all;
}

bool session_table::may_expire_lapsed(shortage of, std::string_view from, time_point now)
{
    const std::string group = peer_group(from, limits_.v6_prefix);
    const std::lock_guard held(lock_);
    const auto peer = peers_.find(group);
    if (of == shortage::none || (of == shortage::of_peer && peer == peers_.end()))
        return false;
    return (of == shortage::of_all ? last_expired_ : peer->second.last_expired).may(now);
}

void session_table::drop_unconfirmed(time_point now)
{
    const std::lock_guard held(lock_);
    drop_old(now);
}

std::size_t session_table::clients() const
{
    const std::lock_guard held(lock_);
    return clients_.size();
}

std::size_t session_table::names() const
{
    const std::lock_guard held(lock_);
    return owners_.size();
}

std::size_t session_table::sessions() const
{
    const std::lock_guard held(lock_);
    return sessions_.size();
}

std::size_t session_table::slot_bytes() const
{
    const std::lock_guard held(lock_);
    return slot_bytes_;
}

} // namespace verbena::nfs::v4

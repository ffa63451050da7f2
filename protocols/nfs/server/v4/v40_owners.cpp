// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/v40_owners.hpp>

#include <algorithm>
#include <array>

namespace verbena::nfs::v4 {

namespace {

// Owners that are looked at for one that comes: of a client with many, so that they can't grow beyond those that have state, and of a peer
// that has all it may have; and of how many peers, where all together have.
constexpr int most_looked_at = 4;
constexpr int most_looked_at_of_peer = 64;
constexpr std::size_t most_peers = 16;

} // namespace

bool moves_seqid(nfsstat4 status) noexcept
{
    switch (status) {
    case nfsstat4::stale_clientid:
    case nfsstat4::stale_stateid:
    case nfsstat4::bad_stateid:
    case nfsstat4::bad_seqid:
    case nfsstat4::badxdr:
    case nfsstat4::resource:
    case nfsstat4::nofilehandle:
    case nfsstat4::moved: return false;
    default: return true;
    }
}

v40_verdict v40_owner::judge(nfs_opnum4 operation, std::uint32_t seqid) const noexcept
{
    // Unlike a stateid's, an owner's number goes from 2^32 - 1 to 0 (7530 9.1.7).
    if (is_new || seqid == seqid_ + 1)
        return v40_verdict::run;
    return seqid == seqid_ && operation == operation_ ? v40_verdict::repeat : v40_verdict::bad_seqid;
}

std::size_t v40_owner::bytes() const noexcept
{
    constexpr std::size_t entries = 384; // of maps and lists
    const std::size_t kept = last.holder ? sizeof(files::lock_holder) + last.holder->owner.size() : 0;
    return sizeof(v40_owner) + entries + 2 * name.size() + kept;
}

class v40_turn::held final : public remote_message {
public:
    held(std::shared_ptr<v40_owner> o, reactor& h) noexcept : owner(std::move(o)), home(h) {}
    void deliver() noexcept override
    {
        if (is_taken)
            owner->turn.release();
        delete this;
    }
    const std::shared_ptr<v40_owner> owner;
    reactor& home;
    bool is_taken = false;
};

void v40_turn::give_home::operator()(held* h) const noexcept
{
    if (h->home.is_here())
        h->deliver();
    else
        h->home.post_remote(*h);
}

v40_turn::v40_turn(std::shared_ptr<v40_owner> owner, reactor& home) : held_(new held(std::move(owner), home))
{
}
void v40_turn::taken() noexcept { held_->is_taken = true; }
void v40_turn::give_back() noexcept { held_.reset(); }
v40_owner& v40_turn::operator*() const noexcept { return *held_->owner; }
const std::shared_ptr<v40_owner>& v40_turn::owner() const noexcept { return held_->owner; }

std::string v40_owners::key_of(bool locks, std::span<const std::byte> name)
{
    std::string key(1, locks ? 'l' : 'o');
    key.append(reinterpret_cast<const char*>(name.data()), name.size());
    return key;
}

std::string v40_owners::key_of(const stateid4& id)
{
    return {reinterpret_cast<const char*>(id.other.data()), id.other.size()};
}

std::shared_ptr<v40_owner> v40_owners::find(files::client_id client, bool locks,
                                            std::span<const std::byte> name) const
{
    const auto of = clients_.find(client);
    if (of == clients_.end())
        return nullptr;
    const auto found = of->second.by_name.find(key_of(locks, name));
    return found == of->second.by_name.end() ? nullptr : found->second;
}

session_table::shortage v40_owners::shortage_of(const of_peer& peer) const noexcept
{
    if (peer.bytes > limits_.owner_memory_per_peer)
        return session_table::shortage::of_peer;
    return bytes_ > limits_.owner_memory ? session_table::shortage::of_all : session_table::shortage::none;
}

// From now on it takes so much.
void v40_owners::count(v40_owner& o, of_peer& peer, std::size_t bytes) noexcept
{
    if (bytes == o.counted_)
        return;
    auto at = most_.extract(std::pair(peer.bytes, &peer));
    peer.bytes += bytes - o.counted_;
    bytes_ += bytes - o.counted_;
    o.counted_ = bytes;
    at.value().first = peer.bytes;
    most_.insert(std::move(at));
}

v40_owners::peers::iterator v40_owners::peer_of(std::string_view name)
{
    const auto [at, is_new] = peers_.try_emplace(std::string(name));
    if (is_new) {
        try {
            most_.emplace(0, &at->second);
        } catch (...) {
            peers_.erase(at);
            throw;
        }
    }
    return at;
}

// It goes if it is idle. False: all were looked at.
bool v40_owners::look_at_first(by_use_list& of, const v40_owner& made, const idle_test& is_idle)
{
    const std::shared_ptr<v40_owner> oldest = of.front();
    if (oldest.get() == &made)
        return false;
    if (oldest->turn.available() != 0 && is_idle(*oldest))
        drop(*oldest);
    else
        of.splice(of.end(), of, of.begin());
    return true;
}

// Who has one that is idle loses no more by it than the next OPEN_CONFIRM. So nobody keeps others from opening by owners alone.
void v40_owners::make_room_of_all(const v40_owner& made, const idle_test& is_idle)
{
    std::array<of_peer*, most_peers> those{};
    std::size_t count = 0;
    for (auto at = most_.rbegin(); at != most_.rend() && count < most_peers; ++at)
        those[count++] = at->second;
    for (std::size_t i = 0; i < count; ++i) {
        by_use_list& of = those[i]->by_use;
        // With the last of its owners a peer goes.
        std::size_t left = std::min<std::size_t>(of.size(), most_looked_at_of_peer);
        for (; left > 0 && bytes_ > limits_.owner_memory; --left)
            if (!look_at_first(of, made, is_idle))
                break;
    }
}

v40_owners::made v40_owners::make(files::client_id client, std::string_view peer, bool locks,
                                  std::span<const std::byte> name, time_point now, const idle_test& is_idle)
{
    if (auto known = find(client, locks, name))
        return {std::move(known), {}};
    const auto made = std::make_shared<v40_owner>(client, locks, name);
    auto at = clients_.find(client);
    if (at == clients_.end())
        at = clients_.try_emplace(client, key_, peer_of(peer)).first;
    of_client& of = at->second;
    of_peer& all = of.peer->second;
    made->used_ = now;
    // All that may fail for want of memory comes first: it is in each of the three, or in none.
    by_use_list in_client(1, made), in_peer(1, made);
    of.by_name.emplace(key_of(locks, name), made);
    made->by_use_ = in_client.begin();
    made->by_use_of_peer_ = in_peer.begin();
    of.by_use.splice(of.by_use.end(), in_client);
    all.by_use.splice(all.by_use.end(), in_peer);
    ++count_;
    count(*made, all, made->bytes());
    // It is there already, so that neither entry goes meanwhile.
    for (int i = 0; of.by_name.size() > few && i < most_looked_at; ++i)
        if (!look_at_first(of.by_use, *made, is_idle))
            break;
    const auto lacks = [&] { return shortage_of(all) == session_table::shortage::of_peer; };
    for (int i = 0; lacks() && i < most_looked_at_of_peer; ++i)
        if (!look_at_first(all.by_use, *made, is_idle))
            break;
    if (shortage_of(all) == session_table::shortage::of_all)
        make_room_of_all(*made, is_idle);
    const session_table::shortage lacking = shortage_of(all);
    if (lacking == session_table::shortage::none)
        return {made, lacking};
    drop(*made);
    return {nullptr, lacking};
}

void v40_owners::use(v40_owner& o, time_point now)
{
    const auto of = clients_.find(o.client);
    if (o.gone || of == clients_.end())
        return;
    o.used_ = now;
    by_use_list& own = of->second.by_use;
    by_use_list& shared = of->second.peer->second.by_use;
    own.splice(own.end(), own, o.by_use_);
    shared.splice(shared.end(), shared, o.by_use_of_peer_);
}

void v40_owners::finish(v40_owner& o, nfs_opnum4 operation, std::uint32_t seqid, const v40_answer& answer)
{
    if (!moves_seqid(answer.status))
        return;
    o.is_new = false;
    o.seqid_ = seqid;
    o.operation_ = operation;
    o.last = answer;
    const auto of = clients_.find(o.client);
    if (o.gone || of == clients_.end())
        return;
    of_peer& peer = of->second.peer->second;
    count(o, peer, o.bytes());
    // A repeat hears that it is denied, and not by whom.
    if (o.last.holder && shortage_of(peer) != session_table::shortage::none) {
        o.last.holder.reset();
        count(o, peer, o.bytes());
    }
}

void v40_owners::begin_closing(const std::shared_ptr<v40_owner>& o, const stateid4& id)
{
    if (o->gone)
        return;
    closed_[key_of(id)] = o;
    o->closing_ = id;
}

void v40_owners::end_closing(v40_owner& o, bool is_closed) noexcept
{
    if (!o.closing_) // the owner is gone, and what led to it
        return;
    // One that was closed before can't be closed again, and leads to its owner still.
    const bool is_known = o.closed_ && o.closed_->other == o.closing_->other;
    const std::optional<stateid4>& of_no_use = is_closed ? o.closed_ : o.closing_;
    if (of_no_use && !is_known)
        closed_.erase(key_of(*of_no_use));
    if (is_closed)
        o.closed_ = o.closing_;
    o.closing_.reset();
}

std::shared_ptr<v40_owner> v40_owners::who_closed(const stateid4& id) const
{
    const auto found = closed_.find(key_of(id));
    return found == closed_.end() ? nullptr : found->second.lock();
}

void v40_owners::drop(v40_owner& o)
{
    const auto of = clients_.find(o.client);
    if (o.gone || of == clients_.end())
        return;
    // What needs memory comes first: an owner that is gone and can be found keeps its callers going round.
    const std::string by_name = key_of(o.locks, o.name);
    const std::shared_ptr<v40_owner> held = *o.by_use_;
    o.gone = true;
    for (std::optional<stateid4>* const leads : {&o.closed_, &o.closing_}) {
        if (*leads)
            closed_.erase(key_of(**leads));
        leads->reset();
    }
    of->second.by_name.erase(by_name);
    of->second.by_use.erase(o.by_use_);
    const peers::iterator peer = of->second.peer;
    peer->second.by_use.erase(o.by_use_of_peer_);
    count(o, peer->second, 0);
    --count_;
    if (of->second.by_name.empty())
        clients_.erase(of);
    if (peer->second.by_use.empty()) {
        most_.erase(std::pair(peer->second.bytes, &peer->second));
        peers_.erase(peer);
    }
}

void v40_owners::forget(files::client_id client)
{
    for (auto of = clients_.find(client); of != clients_.end(); of = clients_.find(client))
        drop(*of->second.by_use.front());
}

std::vector<std::shared_ptr<v40_owner>> v40_owners::unused(files::client_id client, time_point before,
                                                           time_point now, std::size_t& most)
{
    std::vector<std::shared_ptr<v40_owner>> out;
    const auto of = clients_.find(client);
    if (of == clients_.end())
        return out;
    auto& by_use = of->second.by_use;
    for (std::size_t left = by_use.size(); left > 0 && most > 0; --left, --most) {
        const std::shared_ptr<v40_owner> oldest = by_use.front();
        if (oldest->used_ >= before)
            break;
        use(*oldest, now);
        if (oldest->turn.available() != 0)
            out.push_back(oldest);
    }
    return out;
}

files::client_id v40_owners::next_client(files::client_id last) const noexcept
{
    if (clients_.empty())
        return files::nobody;
    const auto behind = clients_.upper_bound(last);
    return (behind == clients_.end() ? clients_.begin() : behind)->first;
}

} // namespace verbena::nfs::v4

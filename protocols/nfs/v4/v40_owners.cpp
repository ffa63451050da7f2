// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/v4/v40_owners.hpp>

#include <algorithm>

namespace verbena::nfs::v4 {

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
    if (is_new || seqid == files::next_seqid(seqid_))
        return v40_verdict::run;
    return seqid == seqid_ && operation == operation_ ? v40_verdict::repeat : v40_verdict::bad_seqid;
}

void v40_owner::finish(nfs_opnum4 operation, std::uint32_t seqid, const v40_answer& answer)
{
    if (!moves_seqid(answer.status))
        return;
    is_new = false;
    seqid_ = seqid;
    operation_ = operation;
    last = answer;
}

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

std::shared_ptr<v40_owner> v40_owners::make(files::client_id client, bool locks,
                                            std::span<const std::byte> name, time_point now,
                                            const idle_test& is_idle)
{
    if (auto known = find(client, locks, name))
        return known;
    of_client& of = clients_.try_emplace(client, key_).first->second;
    // More than one goes for each that comes, so that they can't grow beyond those that have state.
    for (int looked_at = 0; of.by_name.size() >= few && looked_at < 4; ++looked_at) {
        const std::shared_ptr<v40_owner> oldest = of.by_use.front();
        if (oldest->turn.available() != 0 && is_idle(*oldest))
            drop(*oldest);
        else
            of.by_use.splice(of.by_use.end(), of.by_use, of.by_use.begin());
    }
    auto made = std::make_shared<v40_owner>(client, locks, name);
    made->used_ = now;
    made->by_use_ = of.by_use.insert(of.by_use.end(), made);
    of.by_name.emplace(key_of(locks, name), made);
    ++count_;
    return made;
}

void v40_owners::use(v40_owner& o, time_point now)
{
    const auto of = clients_.find(o.client);
    if (o.gone || of == clients_.end())
        return;
    o.used_ = now;
    of->second.by_use.splice(of->second.by_use.end(), of->second.by_use, o.by_use_);
}

void v40_owners::note_closed(const std::shared_ptr<v40_owner>& o, const stateid4& id)
{
    if (o->gone)
        return;
    if (o->closed_)
        closed_.erase(key_of(*o->closed_));
    o->closed_ = id;
    closed_[key_of(id)] = o;
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
    const std::shared_ptr<v40_owner> held = *o.by_use_;
    o.gone = true;
    if (o.closed_)
        closed_.erase(key_of(*o.closed_));
    of->second.by_name.erase(key_of(o.locks, o.name));
    of->second.by_use.erase(o.by_use_);
    --count_;
    if (of->second.by_name.empty())
        clients_.erase(of);
}

void v40_owners::forget(files::client_id client)
{
    for (auto of = clients_.find(client); of != clients_.end(); of = clients_.find(client))
        drop(*of->second.by_use.front());
}

std::vector<std::shared_ptr<v40_owner>> v40_owners::unused(files::client_id client, time_point before,
                                                           time_point now, std::size_t most)
{
    std::vector<std::shared_ptr<v40_owner>> out;
    const auto of = clients_.find(client);
    if (of == clients_.end())
        return out;
    auto& by_use = of->second.by_use;
    for (std::size_t left = std::min(most, by_use.size()); left > 0; --left) {
        const std::shared_ptr<v40_owner> oldest = by_use.front();
        if (oldest->used_ >= before)
            break;
        use(*oldest, now);
        if (oldest->turn.available() != 0)
            out.push_back(oldest);
    }
    return out;
}

std::vector<files::client_id> v40_owners::clients() const
{
    std::vector<files::client_id> out;
    out.reserve(clients_.size());
    for (const auto& [client, of] : clients_)
        out.push_back(client);
    return out;
}

} // namespace verbena::nfs::v4

// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>

#include <verbena/core/reactor/request_list.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>

#include <algorithm>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

namespace verbena::nfs {

namespace {

constexpr std::uint16_t first_unreserved_port = 1024;
constexpr std::size_t most_shards = runtime::max_shards; // behind them those that are none

std::size_t this_shard() noexcept
{
    const reactor* const here = reactor::current();
    return here != nullptr && here->index() < most_shards ? here->index() : most_shards;
}

// A peer's address. A connection brings many calls in a row, and to parse the text again for each would take a twentieth of a GETATTR.
std::optional<ip_address> address_of(std::string_view text) noexcept
{
    struct parsed {
        std::array<char, 48> text{};
        std::size_t size = 0;
        std::optional<ip_address> address;
    };
    constinit thread_local parsed last; // a shard has a thread of its own
    if (text.size() != last.size || std::memcmp(text.data(), last.text.data(), text.size()) != 0) {
        if (text.size() > last.text.size())
            return ip_address::parse(text);
        std::ranges::copy(text, last.text.begin());
        last.size = text.size();
        last.address = ip_address::parse(text);
    }
    return last.address;
}

// Means "leave it" to chown(2) and setfsuid(2), so it must never reach a back end as an identity.

bool good_pseudo_path(std::string_view path) noexcept
{
    if (path == "/")
        return true;
    if (path.empty() || path.front() != '/' || path.size() > 1024 || path.find('\0') != path.npos)
        return false;
    while (!path.empty()) {
        path.remove_prefix(1);
        const auto component = path.substr(0, path.find('/'));
        if (component.empty() || component == "." || component == "..")
            return false;
        path.remove_prefix(component.size());
    }
    return true;
}

// What stands in `inner` behind `outer` and a '/'; nothing where it does not begin so.
std::string_view path_within(std::string_view outer, std::string_view inner) noexcept
{
    if (outer == "/")
        outer = {};
    if (inner.size() < outer.size() + 2 || !inner.starts_with(outer) || inner[outer.size()] != '/')
        return {};
    return inner.substr(outer.size() + 1);
}

} // namespace

void describe(const export_options& exported, const storage::handle& file, request_report& into) noexcept
{
    into.object.append(exported.pseudo);
    if (file == exported.backend->root())
        return;
    if (const auto number = exported.backend->number_in(file)) {
        into.object.append(" inode ").append(*number);
        return;
    }
    into.object.append(" handle ");
    for (const std::byte b : file.bytes()) {
        const auto value = std::to_integer<unsigned>(b);
        into.object.append(value >> 4, 16).append(value & 15, 16);
    }
}

std::string_view next_component(std::string_view& path) noexcept
{
    path.remove_prefix(std::min(path.find_first_not_of('/'), path.size()));
    const auto component = path.substr(0, path.find('/'));
    path.remove_prefix(component.size());
    return component;
}

void access_counters::note(access_refusal reason) noexcept
{
    switch (reason) {
    case access_refusal::none: break;
    case access_refusal::address: address.add(); break;
    case access_refusal::transport: transport.add(); break;
    case access_refusal::port: port.add(); break;
    }
}

access_refusal check_access(const export_options& exported, const rpc::peer& peer, host_addresses& host)
{
    if (!exported.transports.empty() && std::find(exported.transports.begin(), exported.transports.end(),
                                                  peer.transport) == exported.transports.end())
        return access_refusal::transport;
    return check_mount_access(exported, peer, host);
}

access_refusal check_mount_access(const export_options& exported, const rpc::peer& peer, host_addresses& host)
{
    if (peer.transport != "loop") {
        if (!exported.clients.everybody()) {
            const auto address = address_of(peer.address);
            if (!address || !exported.clients.admits(*address, host))
                return access_refusal::address;
        }
        if (exported.secure && (peer.port == 0 || peer.port >= first_unreserved_port))
            return access_refusal::port;
    }
    return access_refusal::none;
}

bool is_for(const export_table& exports, const rpc::peer& peer, host_addresses& host)
{
    return std::ranges::any_of(exports.all(), [&](const export_options& e) {
        return check_mount_access(e, peer, host) != access_refusal::address;
    });
}

storage::credential squash(const export_options& exported, const rpc::principal& claimed,
                           const storage::shared_groups& known) noexcept
{
    storage::credential who(exported.anonuid, exported.anongid);
    if (claimed.is_anonymous() || exported.all_squash || claimed.uid() == no_id ||
        (exported.root_squash && claimed.uid() == 0))
        return who;
    const auto gid = [&](std::uint32_t claim) {
        return claim == no_id || (exported.root_squash && claim == 0) ? exported.anongid : claim;
    };
    who.uid = claimed.uid();
    who.gid = gid(claimed.gid());
    if (known) {
        who.share_groups(known);
        return who;
    }
    std::array<std::uint32_t, rpc::principal::max_groups> groups;
    const auto others = claimed.groups();
    std::transform(others.begin(), others.end(), groups.begin(), gid);
    who.set_groups({groups.data(), others.size()});
    return who;
}

storage::shared_groups without_root(const std::vector<std::uint32_t>& groups, std::uint32_t anongid)
{
    std::vector<std::uint32_t> kept(groups.begin() + 1, groups.end());
    const auto at = std::ranges::lower_bound(kept, anongid);
    if (at == kept.end() || *at != anongid)
        kept.insert(at, anongid);
    return std::make_shared<const std::vector<std::uint32_t>>(std::move(kept));
}

std::uint32_t export_id_of(std::string_view pseudo) noexcept
{
    // FNV-1a: any function will do that never changes.
    std::uint32_t hash = 2166136261;
    for (const char c : pseudo)
        hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
    return hash == 0 ? 1 : hash;
}

export_list::export_list() : calls_(std::make_unique<calls_here[]>(most_shards + 1)) {}

export_list::export_list(const export_list& before, std::int64_t now)
    : places_(before.places_, now),
      before_(&before.places_),
      calls_(std::make_unique<calls_here[]>(most_shards + 1))
{
}

result<void> export_list::add(export_options options)
{
    if (!good_pseudo_path(options.pseudo))
        return error(std::errc::invalid_argument,
                     "an export's pseudo-path must be absolute, without empty, '.' or '..' components");
    if (options.backend == nullptr)
        return error(std::errc::invalid_argument, "an export without a back end");
    if (options.anonuid == no_id || options.anongid == no_id)
        return error(std::errc::invalid_argument, "anonuid and anongid must be below 4294967295");
    if (exports_.size() == max_exports)
        return error(std::errc::invalid_argument, "more than 4096 exports");
    if (options.id == 0)
        options.id = export_id_of(options.pseudo);
    for (const export_options& other : exports_) {
        if (other.pseudo == options.pseudo)
            return error(std::errc::invalid_argument,
                         "two exports with the same pseudo-path; give one another: DIR:/PSEUDO");
    }
    if (by_id(options.id) != nullptr)
        return error(std::errc::invalid_argument, "two exports with the same id; set another id for one",
                     options.id);
    const std::size_t handle_size = options.backend->root().bytes().size();
    if (handle_size == 0 || handle_size > file_handle::max_inner)
        return error(std::errc::invalid_argument,
                     "the file system's handles are too long for NFS version 3 (51 bytes at most)",
                     handle_size);
    if (options.space == 0)
        options.space = space_of(options);
    if (!options.users)
        options.users = std::make_shared<export_users>();
    exports_.push_back(std::move(options));
    note_nests(exports_.back());
    places_.add(exports_.back(), exports_.back().pseudo, before_);
    const of_number in_space(exports_.back().space, &exports_.back());
    spaces_.insert(std::ranges::upper_bound(spaces_, in_space.first, {}, &of_number::first), in_space);
    const auto entry = std::pair(exports_.back().id, static_cast<const export_options*>(&exports_.back()));
    ids_.insert(std::upper_bound(ids_.begin(), ids_.end(), entry), entry);
    return {};
}

// Of the same tree is what reaches the same files by the same handles.
std::uint32_t export_list::space_of(const export_options& added) const noexcept
{
    const std::uint64_t files = added.backend->info().file_space;
    for (const export_options& other : exports_)
        if (other.backend == added.backend || (files != 0 && other.backend->info().file_space == files &&
                                               other.backend->kind() == added.backend->kind()))
            return other.space;
    // After a reload another tree may have this number, whose first export has gone.
    std::uint32_t space = added.id;
    while (std::ranges::find(exports_, space, &export_options::space) != exports_.end())
        space = space == UINT32_MAX ? 1 : space + 1;
    return space;
}

std::span<const export_list::of_number> export_list::of_space(std::uint32_t space) const noexcept
{
    const auto found = std::ranges::equal_range(spaces_, space, {}, &of_number::first);
    return {found.begin(), found.end()};
}

const export_options* export_list::by_id(std::uint32_t id) const noexcept
{
    const auto found =
        std::lower_bound(ids_.begin(), ids_.end(), id,
                         [](const auto& entry, std::uint32_t wanted) { return entry.first < wanted; });
    return found != ids_.end() && found->first == id ? found->second : nullptr;
}

bool export_list::comes_before(const nest& one, const nest& other) noexcept
{
    return std::tie(one.outer->id, one.path) < std::tie(other.outer->id, other.path);
}

void export_list::note_nest(const nest& made)
{
    nests_.insert(std::upper_bound(nests_.begin(), nests_.end(), made, comes_before), made);
}

// Each lies in the nearest one alone.
void export_list::note_nests(const export_options& added)
{
    const export_options* around = nullptr;
    for (const export_options& other : exports_) {
        if (&other == &added || path_within(other.pseudo, added.pseudo).empty())
            continue;
        if (around == nullptr || other.pseudo.size() > around->pseudo.size())
            around = &other;
    }
    for (const export_options& other : exports_) {
        const std::string_view path = path_within(added.pseudo, other.pseudo);
        if (&other == &added || path.empty())
            continue;
        const nest* const known = nest_around(other);
        if (known != nullptr && known->outer->pseudo.size() > added.pseudo.size())
            continue;
        if (known != nullptr)
            nests_.erase(nests_.begin() + (known - nests_.data()));
        note_nest({&added, path, &other});
    }
    if (around != nullptr)
        note_nest({around, path_within(around->pseudo, added.pseudo), &added});
}

const export_options* export_list::nested(const export_options& outer, std::string_view name) const noexcept
{
    const auto inside = nests_of(outer);
    const auto found = std::ranges::lower_bound(inside, name, {}, &nest::path);
    return found != inside.end() && found->path == name ? found->inner : nullptr;
}

std::span<const export_list::nest> export_list::nests_of(const export_options& outer) const noexcept
{
    const auto found =
        std::ranges::equal_range(nests_, outer.id, {}, [](const nest& n) { return n.outer->id; });
    return {found.begin(), found.end()};
}

const export_list::nest* export_list::nest_around(const export_options& inner) const noexcept
{
    const auto found = std::ranges::find_if(nests_, [&](const nest& n) { return n.inner->id == inner.id; });
    return found != nests_.end() ? &*found : nullptr;
}

std::optional<export_list::match> export_list::by_path(std::string_view path) const noexcept
{
    std::optional<match> best;
    if (path.empty() || path.front() != '/')
        return best;
    std::size_t best_length = 0;
    for (const export_options& exported : exports_) {
        std::string_view own = exported.pseudo;
        std::string_view rest = path;
        bool same = true;
        for (auto component = next_component(own); same && !component.empty();
             component = next_component(own))
            same = next_component(rest) == component;
        if (same && (!best || exported.pseudo.size() > best_length)) {
            rest.remove_prefix(std::min(rest.find_first_not_of('/'), rest.size()));
            best = match{&exported, rest};
            best_length = exported.pseudo.size();
        }
    }
    return best;
}

bool export_users::none() const noexcept
{
    std::int64_t sum = 0;
    for (const line& l : lines_)
        sum += l.users.load(std::memory_order_acquire);
    return sum == 0;
}

export_ref::export_ref(const export_options& e) noexcept : exported_(&e), shard_(this_shard())
{
    if (exported_->users)
        exported_->users->enter(shard_);
}

export_ref::export_ref(const export_ref& other) noexcept : exported_(other.exported_), shard_(other.shard_)
{
    if (exported_ != nullptr && exported_->users)
        exported_->users->enter(shard_);
}

// --- A list for each shard

struct export_table::shared {
    struct slot {
        std::atomic<const export_list*> list{nullptr};
        intrusive_list<listener> listeners; // of its shard
    };
    shared()
    {
        lists.reserve(usual_lists);
        lists.push_back(std::make_shared<export_list>());
    }

    // More than a reload leaves behind: to publish one takes no memory, since nothing could be done without.
    static constexpr std::size_t usual_lists = 128;
    std::array<slot, most_shards + 1> slots;
    std::mutex mutex;                                // of what follows
    std::vector<std::shared_ptr<export_list>> lists; // the newest at the end
};

export_table::export_table() : shared_(std::make_unique<shared>())
{
    for (auto& s : shared_->slots)
        s.list.store(shared_->lists.back().get(), std::memory_order_relaxed);
}

export_table::export_table(export_table&&) noexcept = default;
export_table& export_table::operator=(export_table&&) noexcept = default;
export_table::~export_table() = default;

result<void> export_table::add(export_options options)
{
    const std::lock_guard lock(shared_->mutex);
    return shared_->lists.back()->add(std::move(options));
}

const export_list& export_table::now() const noexcept
{
    return *shared_->slots[this_shard()].list.load(std::memory_order_acquire);
}

export_table::use export_table::begin_use() const noexcept
{
    const std::size_t here = this_shard();
    return use(shared_->slots[here].list.load(std::memory_order_acquire)->calls_[here].calls);
}

void export_table::tell(listener& l) const noexcept { shared_->slots[this_shard()].listeners.push_back(l); }

std::shared_ptr<const export_list> export_table::newest() const
{
    const std::lock_guard lock(shared_->mutex);
    return shared_->lists.back();
}

void export_table::publish(std::shared_ptr<export_list> made, std::size_t shards)
{
    const std::lock_guard lock(shared_->mutex);
    made->before_ = nullptr;
    shared_->lists.push_back(std::move(made));
    for (std::size_t i = shards; i <= most_shards; ++i)
        shared_->slots[i].list.store(shared_->lists.back().get(), std::memory_order_release);
}

void export_table::take(const export_list& made) noexcept
{
    auto& slot = shared_->slots[this_shard()];
    slot.list.store(&made, std::memory_order_release);
    for (auto* l = slot.listeners.front(); l != nullptr; l = slot.listeners.next(*l))
        l->exports_changed();
}

// A call that began with a list may have seen each later one.
std::size_t export_table::drop_old()
{
    const std::lock_guard lock(shared_->mutex);
    auto& lists = shared_->lists;
    const auto is_used = [&](const export_list& list) {
        for (std::size_t i = 0; i <= most_shards; ++i) {
            if (shared_->slots[i].list.load(std::memory_order_acquire) == &list ||
                list.calls_[i].calls.load(std::memory_order_acquire) != 0)
                return true;
        }
        return false;
    };
    while (lists.size() > 1 && !is_used(*lists.front()))
        lists.erase(lists.begin());
    return lists.size() - 1;
}

result<void> refuse_public(const export_options& exported, std::span<const ip_address> listeners,
                           const host_addresses& host)
{
    if (!exported.clients.admits_strangers())
        return {};
    const auto global = [](const ip_address& address) { return address.is_global(); };
    for (const ip_address& listener : listeners) {
        const bool reachable = listener.is_unspecified()
                                   ? std::any_of(host.list().begin(), host.list().end(), global)
                                   : listener.is_global();
        if (reachable)
            return error(
                std::errc::operation_not_permitted,
                "an export for everybody at a globally routable address: with AUTH_SYS any caller may "
                "claim any user; name the clients, listen elsewhere, or insist with --allow-public");
    }
    return {};
}

} // namespace verbena::nfs

// SPDX-License-Identifier: Apache-2.0
// What is exported, to whom, and as whom a caller acts there.
//
// An export is safe unless it says otherwise: without a list of clients it is for this host only, and
// root is nobody in particular.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/net/client_list.hpp>
#include <verbena/core/net/ip_address.hpp>
#include <verbena/core/result.hpp>
#include <verbena/protocols/nfs/server/export_traffic.hpp>
#include <verbena/protocols/rpc/call.hpp>
#include <verbena/protocols/rpc/principal.hpp>
#include <verbena/protocols/storage/file_backend.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs {

struct export_options {
    static constexpr std::uint32_t nobody = 65534;

    /// Stands in every file handle, so it must stay the same over restarts. 0: made from `pseudo`.
    std::uint32_t id = 0;
    /// What clients mount: absolute, no empty, "." or ".." component, no '/' at the end ("/" alone is good).
    std::string pseudo = "/export";
    storage::file_backend* backend = nullptr; ///< outlives the table and every call
    client_list clients;
    std::vector<std::string> transports; ///< allowed ones ("tcp", "iwarp"...); none: all
    bool read_only = false;
    bool root_squash = true; ///< uid 0 acts as anonuid and anongid
    bool all_squash = false; ///< everybody does
    std::uint32_t anonuid = nobody;
    std::uint32_t anongid = nobody;
    /// Processes of this host may change the files without asking, as may exports of the same tree that share no state with this one (`space`):
    /// version 4's clients get delegations to read alone, and those only where the back end has leases.
    bool local_writers = true;
    /// Files of it are also reached by layouts (server_commons::pnfs), where the back end can map them.
    bool pnfs = false;
    bool secure = false; ///< the peer's port must be below 1024; RDMA clients have none such
    /// Counts what calls do to it; nullptr: nobody wants to know.
    std::shared_ptr<export_traffic> traffic;
    /// Set by export_table::add(). Exports of one space are those of one tree: what clients have open, locked and
    /// delegated by one of them counts for all. It is the id of the first of them.
    std::uint32_t space = 0;

    /// Where `shard` counts; nullptr where nothing is counted.
    export_counters* counters(unsigned shard) const noexcept
    {
        return traffic ? traffic->on(shard) : nullptr;
    }
};

/// For people: the export, and the file by the name that its back end gave it, which costs no system call.
void describe(const export_options& exported, const storage::handle& file, request_report& into) noexcept;

class export_table;

/// Why a peer may not use an export.
enum class access_refusal : std::uint8_t { none, address, transport, port };

/// Refusals by reason. Written by one shard, read from any thread.
struct access_counters {
    counter address;
    counter transport;
    counter port;

    void note(access_refusal reason) noexcept;
};

/// Whether `peer` may use the export. A peer of transport "loop" is in this process, thus on this host.
access_refusal check_access(const export_options& exported, const rpc::peer& peer, host_addresses& host);
/// Whether `peer` may ask for a handle of the export: as check_access(), by any transport, since kernels
/// speak MOUNT over TCP even for a mount by RDMA. The handle serves over the export's transports only.
access_refusal check_mount_access(const export_options& exported, const rpc::peer& peer,
                                  host_addresses& host);

/// Whether any export is for the peer's address.
bool is_for(const export_table& exports, const rpc::peer& peer, host_addresses& host);

class user_groups;

/// As whom a caller that claims to be `claimed` acts: with `known`, unless that is empty, else with the groups that it
/// claims. Who is squashed has none. `known` counts as it is, and is shared: root's group, where it is squashed, is
/// none of them (without_root()). With manage_gids caller_groups knows them.
storage::credential squash(const export_options& exported, const rpc::principal& claimed,
                           const storage::shared_groups& known = {}) noexcept;
/// `groups`, which are sorted and begin with root's, with `anongid` in its place. Throws std::bad_alloc.
storage::shared_groups without_root(const std::vector<std::uint32_t>& groups, std::uint32_t anongid);

/// Who nobody is: chown(2) and setfsuid(2) read it as "leave it".
inline constexpr std::uint32_t no_id = ~std::uint32_t(0);

/// The exports of one server. Filled at start, then read from any shard.
class export_table {
public:
    static constexpr std::size_t max_exports = 4096;

    /// EINVAL for a bad or repeated pseudo-path or id, or handles that can't be signed; the context
    /// says which rule.
    result<void> add(export_options options);

    const export_options* by_id(std::uint32_t id) const noexcept;
    using of_number = std::pair<std::uint32_t, const export_options*>;
    /// Those of one space, in the order of add().
    std::span<const of_number> of_space(std::uint32_t space) const noexcept;

    struct match {
        const export_options* exported;
        std::string_view rest; ///< of the path asked for, behind the export's; without '/' in front
    };
    /// The export with the longest pseudo-path that is `path` or one of its ancestors.
    std::optional<match> by_path(std::string_view path) const noexcept;

    /// An export whose pseudo-path lies in another one's: it covers what that one has at this path.
    struct nest {
        const export_options* outer;
        std::string_view
            path; ///< of the inner one's pseudo-path, what stands behind the outer one's; without '/' in front
        const export_options* inner;
    };
    /// The export whose pseudo-path is that of `outer` and `name` behind it: it covers what the root of `outer` has by
    /// this name. nullptr if there is none.
    const export_options* nested(const export_options& outer, std::string_view name) const noexcept;
    /// The exports within `outer`, at any depth, but for those within another one of them.
    std::span<const nest> nests_of(const export_options& outer) const noexcept;
    bool has_nested(const export_options& outer) const noexcept { return !nests_of(outer).empty(); }
    /// The one whose inner export this is; nullptr if it lies in no other one.
    const nest* nest_around(const export_options& inner) const noexcept;

    const std::deque<export_options>& all() const noexcept { return exports_; }

    /// Has callers' groups come from `groups`, which outlives all calls; to be set before the first one. Without it
    /// they come from the calls.
    void look_up_groups(user_groups& groups) noexcept { groups_ = &groups; }
    user_groups* groups() const noexcept { return groups_; }

private:
    static bool comes_before(const nest& one, const nest& other) noexcept;
    void note_nest(const nest& made);
    void note_nests(const export_options& added);
    std::uint32_t space_of(const export_options& added) const noexcept;

    std::deque<export_options> exports_; // in the order of add()
    std::vector<nest> nests_;            // sorted
    std::vector<of_number> ids_;         // sorted
    std::vector<of_number> spaces_;      // sorted by their numbers
    user_groups* groups_ = nullptr;
};

/// Takes the first component off `path`, where '/' may be repeated; empty behind the last one.
std::string_view next_component(std::string_view& path) noexcept;

/// The id that an export gets from its pseudo-path.
std::uint32_t export_id_of(std::string_view pseudo) noexcept;

/// EPERM if AUTH_SYS, in which a caller names itself, would be open to strangers: `exported` admits
/// globally routable clients, and a listener stands at (or, being unspecified, includes) a globally
/// routable address. The operator can insist with --allow-public.
result<void> refuse_public(const export_options& exported, std::span<const ip_address> listeners,
                           const host_addresses& host);

} // namespace verbena::nfs

#pragma GCC visibility pop

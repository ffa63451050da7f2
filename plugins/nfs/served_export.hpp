// SPDX-License-Identifier: Apache-2.0
// An export that is open: its back end, what the table has of it, what people are told.
#pragma once

#include "export_config.hpp"
#include "hung_wait.hpp"
#include "start_text.hpp"

#include <verbena/core/module/protocol_module.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/protocols/nfs/server/export_room.hpp>
#include <verbena/protocols/nfs/server/export_traffic.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/storage/module.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace verbena::nfs {

/// A back end with a lane of its own. It is closed with this, while shards run only behind leave_shards().
struct export_backend {
    explicit export_backend(runtime& rt) noexcept : shards(rt) {}
    export_backend(const export_backend&) = delete;
    ~export_backend();

    runtime& shards;
    blocking_pool* lane = nullptr;
    /// Whether the runtime goes on when this ends; else the lane goes with that, and has ended before.
    bool is_closed_early = false;
    storage::file_backend* beneath = nullptr; ///< beneath all filters
    // These outlive the metrics of `opened`.
    std::shared_ptr<export_traffic> traffic;
    export_room room;
    storage::opened_backend opened;
};

struct served_export {
    export_config config;
    std::shared_ptr<export_backend> backend;
    export_options options;
    exported_as as;
};

/// For what is only looked at: nothing is made in the folder.
enum class opened_for : bool { serving, a_look };
/// An export whose back end is being opened.
struct begun_export {
    std::shared_ptr<served_export> made;
    storage::open_context context; ///< refers to `made`
    std::unique_ptr<storage::opening> opening;
};
/// Begins to open it, so that the disks of several are waited for together. Throws config_error, with the place. `kept` has the back end
/// from then on, and if anything fails: its lane may be at work for it still, for as long as a disk hangs (close_within()).
/// `wait`: of all that is opened with it.
void begin_export(module_host& host, export_config& e, std::shared_ptr<export_backend>& kept, hung_wait& wait,
                  opened_for what = opened_for::serving);
/// Ends what begin_export() began, once. `targets`: where NFS will be, or is, served. Throws config_error.
std::shared_ptr<served_export> open_export(module_host& host, const export_config& e,
                                           std::span<const listen_target> targets);
/// For a back end that nobody uses: true if nothing runs on its lane any more, so that its end waits for nothing; then it is closed early.
/// False: something still does after `patience`. It must stay, and its metrics are gone.
[[nodiscard]] bool close_within(export_backend& of, std::chrono::milliseconds patience) noexcept;
/// The same export, whose back end stays, by another configuration.
std::shared_ptr<served_export> change_export(const served_export& running, const export_config& e);

/// Why another configuration of an export can't be had by change_export(): what of it differs, "directory: /srv/b, was /srv/a"; empty: it can.
std::string needs_another_backend(const export_config& running, const export_config& wanted);
/// What change_export() changes, "clients: 10.0.0.0/8, was this host only; read_only: true, was false"; empty: nothing.
std::string changes_in_place(const export_config& running, const export_config& wanted);

/// Whose delegations a change takes: a client that is kept out can't give one back, and others would wait for it. Where ports or transports
/// tell who is kept out, all go, and clients ask anew.
enum class lost_delegations : std::uint8_t { none, of_kept_out, all };
/// Of what change_export() changes.
lost_delegations lost_by_change(const export_config& running, const export_config& wanted);

/// Throws config_error for exports that would be open to the Internet.
void refuse_public(std::span<const std::shared_ptr<served_export>> exports,
                   std::span<const listen_target> targets);
/// Throws config_error for exports whose callers could read what lies in `state`. `wait`: for what exports have been opened with, or none.
void refuse_exported_state(std::span<const std::shared_ptr<served_export>> exports, const std::string& state,
                           const hung_wait& wait);

} // namespace verbena::nfs

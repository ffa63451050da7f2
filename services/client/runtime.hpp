// SPDX-License-Identifier: Apache-2.0
// What one run of the client has once: a shard, memory, threads for local files, the providers.
#pragma once

#include "user_lookups.hpp"

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/nfs/nsswitch_names.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace verbena::cli {

/// Whether bytes of files go by the RDMA layouts that a server of version 4 gives.
enum class layout_use : std::uint8_t {
    no,
    automatic, ///< where it gives some; what can't go by them goes by NFS
    require,   ///< and what can't is an error
};

struct global_options {
    bool soft = false;
    unsigned timeout_seconds = 60;
    bool json = false;
    bool quiet = false;
    std::string rdma_device; ///< that rdma:// URLs go by; NAME or NAME:PORT
    std::string rdma_source; ///< own address of their connections
    std::string id_domain;   ///< of names of users; empty: this host's
    bool crc = false;        ///< nfs+iwarp:// asks for CRC32C
    layout_use layouts = layout_use::no;
};

/// Contexts as the options say. The pools outlive a context.
std::unique_ptr<verbs::context> make_iwarp(reactor& shard, const global_options& o);
/// Errors: those of rdma::make_context(), EINVAL: --device; or ENOSYS in a build without RDMA devices.
result<std::unique_ptr<verbs::context>> make_rdma(reactor& shard, const global_options& o,
                                                  blocking_pool& devices, blocking_pool& connects);

class runtime {
public:
    static constexpr std::size_t memory_limit = std::size_t(512) << 20;
    static constexpr unsigned file_threads = 4;
    static constexpr unsigned name_threads = 2;
    static constexpr unsigned device_threads = 2;
    static constexpr unsigned connect_threads = 8;

    runtime(std::unique_ptr<reactor> r, const global_options& o)
        : shard_(std::move(r)), options_(o), budget_(memory_limit), buffers_(budget_, shard_.get())
    {
    }
    reactor& shard() noexcept { return *shard_; }
    buffer_pool& buffers() noexcept { return buffers_; }
    blocking_pool& files() noexcept { return files_; }
    /// Users and groups by their names. Made when first asked for.
    nfs::v4::user_names& users();
    /// When no session is left. False if a lookup of a name hangs: then nothing of this may be destroyed, and the process is to be left by
    /// std::_Exit().
    task<bool> end_lookups();
    const global_options& options() const noexcept { return options_; }
    /// Made when first asked for.
    verbs::context& iwarp();
    /// Likewise; the errors of make_rdma().
    result<verbs::context*> rdma();

private:
    std::unique_ptr<reactor> shard_;
    global_options options_;
    memory_budget budget_;
    buffer_pool buffers_;
    blocking_pool files_{file_threads, "local files"};
    std::optional<blocking_pool> names_; // where they are looked up, which may hang
    std::optional<nfs::v4::nsswitch_names> name_source_;
    std::optional<user_lookups> users_;
    // For RDMA devices only.
    std::optional<blocking_pool> device_;
    std::optional<blocking_pool> connects_;
    std::unique_ptr<verbs::context> iwarp_;
    std::unique_ptr<verbs::context> rdma_;
};

} // namespace verbena::cli

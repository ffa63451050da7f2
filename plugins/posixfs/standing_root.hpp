// SPDX-License-Identifier: Apache-2.0
// What a back end serves: one directory, and what was found out about its file system.
#pragma once

#include "handles.hpp"
#include "root_look.hpp"
#include "unique_fd.hpp"

#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace verbena::posixfs {

/// What a file has to be made for. Any thread. Outlives a back end whose file system hangs.
class measured_info {
public:
    explicit measured_info(const storage::filesystem_info& before) : info_(before) {}
    bool is_known() const noexcept { return is_known_.load(std::memory_order_acquire); }
    /// Good once it is known.
    const storage::filesystem_info& get() const noexcept { return info_; }
    void end(std::optional<std::uint64_t> max_file_size);
    /// Asks the file system of the directory `root`, which may wait until a frozen one is thawed.
    void measure(int root);
    /// False if it takes longer.
    bool wait_for(std::chrono::milliseconds patience);

private:
    storage::filesystem_info info_;
    std::atomic<bool> is_known_{false};
    std::mutex mutex_;
    std::condition_variable known_;
};

/// Does not change once it is served.
struct standing_root {
    std::unique_ptr<handle_source> handles;
    storage::filesystem_info info; ///< until it is measured
    std::shared_ptr<measured_info> measured;
    std::uint64_t cookie_verifier = 1;
    root_look at; ///< failed: there is nothing
};

/// Opens what is at the path now. `unmarked`: the file system whose handles bear no mark (mount_point::identity); nothing: this
/// one. Blocks. Errors: those of open_posixfs().
result<std::unique_ptr<standing_root>> open_root(const posixfs_options& options,
                                                 std::optional<std::uint64_t> unmarked = {});
/// For as long as there is nothing to serve. `why`: ENOMEDIUM, or ETIMEDOUT where the root did not answer.
std::unique_ptr<standing_root> no_root(const posixfs_options& options, int why);

} // namespace verbena::posixfs

// SPDX-License-Identifier: Apache-2.0
// A tree that is being opened, so that several of them whose disks hang are waited for together.
#pragma once

#include "standing_root.hpp"

#include <verbena/core/reactor/run_within.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <chrono>
#include <memory>
#include <optional>

namespace verbena::posixfs {

/// open_posixfs() in two parts.
class begun_open {
public:
    using clock = std::chrono::steady_clock;
    /// Has a thread of `lane` look at the root, if that is watched. finish() waits for it until `answer_by`; without one
    /// until 5 s have passed.
    begun_open(const posixfs_options& options, blocking_pool& lane,
               std::optional<clock::time_point> answer_by = {});
    /// A root that does not answer in time is served when it does. Called once.
    result<std::unique_ptr<storage::file_backend>> finish();

private:
    posixfs_options options_;
    blocking_pool& lane_;
    const clock::time_point until_;
    std::optional<error> refused_;
    std::optional<begun_call<result<std::unique_ptr<standing_root>>>> first_look_;
};

} // namespace verbena::posixfs

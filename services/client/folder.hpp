// SPDX-License-Identifier: Apache-2.0
// A directory of a tree that is being listed, with the handles of those that it lies in. Shard-local.
#pragma once

#include "remote.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace verbena::cli {

class folder {
public:
    /// `held` is greater by size_of(path) while the folder lives, and outlives it: what lies in the folder keeps it alive, after it
    /// was listed.
    folder(std::string path, const cli::handle& handle, std::shared_ptr<const folder> above,
           std::size_t& held)
        : path_(std::move(path)), handle_(handle), above_(std::move(above)), held_(held)
    {
        held_ += size_of(path_);
    }
    ~folder() { held_ -= size_of(path_); }
    folder(const folder&) = delete;
    folder& operator=(const folder&) = delete;

    static std::size_t size_of(std::string_view path) noexcept { return sizeof(folder) + path.size(); }
    const std::string& path() const noexcept { return path_; }
    const cli::handle& handle() const noexcept { return handle_; }
    bool holds_itself() const noexcept
    {
        for (const folder* f = above_.get(); f != nullptr; f = f->above_.get()) {
            if (f->handle_ == handle_)
                return true;
        }
        return false;
    }

private:
    std::string path_;
    cli::handle handle_;
    std::shared_ptr<const folder> above_;
    std::size_t& held_;
};

} // namespace verbena::cli

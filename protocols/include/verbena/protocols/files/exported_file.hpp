// SPDX-License-Identifier: Apache-2.0
// A file, and the export by which somebody came to it.
#pragma once

#include <verbena/protocols/storage/types.hpp>

#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::files {

/// A file as somebody came to it. Exports of one tree have one name for a file, so they share what is open, locked and
/// delegated. Each state still belongs to the export by which its client got it:
/// - A client that has two exports takes their files for different ones, and caches each apart. So what it has by one
///   export is like another client's for what it does by the other one.
/// - An open_file belongs to the back end, and to the user, of one export. No other back end may be given it.
struct exported_file {
    exported_file() = default;
    /// Implicit: where there are no exports, a name is all.
    exported_file(const storage::handle& name, std::uint32_t by = 0) noexcept : key(name), via(by) {}

    storage::handle key; ///< a file_key()
    std::uint32_t via =
        0; ///< the export's own number, which stands in the handle that the client knows; 0: no export
};

} // namespace verbena::files

#pragma GCC visibility pop

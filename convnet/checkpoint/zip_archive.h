// Reads zip archives whose files are stored without compression, as torch.save writes them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "convnet/base/file.h"

namespace convnet {

/// The index of an archive, with the file that holds it.
class ZipArchive {
 public:
  /// A file in the archive.
  struct Entry {
    std::uint64_t header = 0;  ///< byte at which its own header begins
    std::uint64_t bytes = 0;
    bool stored = true;  ///< neither compressed nor encrypted
  };

  /// Reads the index, zip64 or not. Throws InputError if the file is no zip archive or its index is damaged.
  /// `file` must outlive the archive.
  explicit ZipArchive(const InputFile& file);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  /// Returns the bytes of an entry; `bytes` of them from `offset` on. Throws InputError if the archive has no
  /// such entry or range, or if it is compressed. Checksums are not compared: PyTorch can leave them out.
  std::string read(const std::string& name) const;
  std::string read(const std::string& name, std::uint64_t offset, std::uint64_t bytes) const;
  /// Returns an entry. Throws InputError if there is none.
  const Entry& entry(const std::string& name) const;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void read_index(std::uint64_t begin, std::uint64_t bytes, std::uint64_t count);

  const InputFile& file_;
  std::map<std::string, Entry> entries_;
};

}  // namespace convnet

"""Texts that people paste: what one spells out is answered, all else is *not understood*."""
